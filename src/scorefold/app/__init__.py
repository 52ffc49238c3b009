"""The command line and what it runs: runs on tasks, the demo, the benchmark, files, figures."""
