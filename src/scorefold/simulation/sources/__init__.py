"""Who runs a simulator: this process, a compiled program, or worker processes; all of them give the same simulations."""
