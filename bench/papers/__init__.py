"""The experiments of the papers that Heliograph stands on, run again.

    python -m bench.papers                    all of them, a few minutes on a quiet machine
    python -m bench.papers tao-latency        one
    python -m bench.papers --quick            shows that they run, and says nothing of speed
    python -m bench.papers --report           write stored results into docs/explanation/papers.md

Unlike a benchmark, an experiment has the shape of its paper: a table or a figure. What it is held against are
sentences, because other machines gave the paper's numbers.
"""
