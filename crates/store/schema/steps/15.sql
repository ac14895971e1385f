-- Calls that wait until a budget's others are over.

ALTER TABLE budget_hold ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;  -- the call has not begun; its place is by `at`
