//! The scale of an axis: round numbers that people can read values off.

/// From nothing up to a round number at or above the largest value, in a few even steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub top: f64,
    pub step: f64,
}

/// More lines than this are a ruler, not a chart.
const STEPS: f64 = 4.0;

impl Scale {
    /// `least` is the smallest step that means anything: one for things that are counted, zero for amounts.
    pub fn up_to(largest: f64, least: f64) -> Self {
        let largest = if largest.is_finite() && largest > 0.0 { largest } else { 0.0 };
        if largest == 0.0 {
            let step = if least > 0.0 { least } else { 1.0 };
            return Self { top: step, step };
        }
        let rough = largest / STEPS;
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * magnitude)
            .filter(|step| least == 0.0 || (step / least).fract() == 0.0)
            .find(|step| *step >= rough * 0.999_999)
            .unwrap_or(least)
            .max(least);
        Self { top: (largest / step * 0.999_999).ceil() * step, step }
    }

    /// The values that get a line, from zero upwards.
    pub fn ticks(self) -> impl Iterator<Item = f64> {
        let steps = (self.top / self.step).round();
        (0u32..=100).map(f64::from).take_while(move |n| *n <= steps).map(move |n| n * self.step)
    }

    /// Where a value stands, from 0 at the bottom to 1 at the top.
    pub fn at(self, value: f64) -> f64 {
        (value / self.top).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_few_round_steps() {
        for (largest, least, expected) in [
            (0.0, 0.0, vec![0.0, 1.0]),
            (0.0, 1.0, vec![0.0, 1.0]),
            (f64::NAN, 0.0, vec![0.0, 1.0]),
            (f64::INFINITY, 0.0, vec![0.0, 1.0]),
            (1.0, 1.0, vec![0.0, 1.0]),
            (3.0, 1.0, vec![0.0, 1.0, 2.0, 3.0]),
            (7.0, 1.0, vec![0.0, 2.0, 4.0, 6.0, 8.0]),
            (9.0, 1.0, vec![0.0, 5.0, 10.0]),
            (10.0, 0.0, vec![0.0, 2.5, 5.0, 7.5, 10.0]),
            (0.37, 0.0, vec![0.0, 0.1, 0.2, 0.3, 0.4]),
            (81_000.0, 0.0, vec![0.0, 25_000.0, 50_000.0, 75_000.0, 100_000.0]),
        ] {
            let ticks: Vec<f64> = Scale::up_to(largest, least).ticks().collect();
            assert_eq!(ticks.len(), expected.len(), "{largest}: {ticks:?}");
            for (tick, expected) in ticks.iter().zip(&expected) {
                assert!((tick - expected).abs() < expected.abs() * 1e-9 + 1e-12, "{largest}: {ticks:?}");
            }
        }
    }

    #[test]
    fn values_lie_within_the_scale() {
        let scale = Scale::up_to(10.0, 0.0);
        assert!((scale.at(5.0) - 0.5).abs() < 1e-12);
        assert!((scale.at(50.0) - 1.0).abs() < 1e-12);
        assert!(scale.at(-1.0).abs() < 1e-12);
    }
}
