-- What every command asks for, and hardly ever finds.

CREATE INDEX session_broken_off ON session (ended_at) WHERE end_reason = 'crash' OR signal IS NOT NULL;
