"""What runs are worth on perturbed graphs, beside what they are worth on the clean one."""
