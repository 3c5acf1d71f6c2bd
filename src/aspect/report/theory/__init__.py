"""The page of the theory: regret and sensitivity, measured against their bounds."""
