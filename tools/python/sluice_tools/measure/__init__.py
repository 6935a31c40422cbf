"""Measuring harness of `sluice demo`, `compare`, `sweep` and `bench`: cells, rows, tables, figures.

A *cell* is one condition under which a critical and a best-effort client run: each alone, or both
under a policy. A *subject* is what runs (a pair of programs, an experiment). Every cell of a subject
is measured in one or more *repeats* and gives one *row* per client. Rows are kept in one CSV, which a
later call goes on with. Only `figure` and `page` need packages beyond the standard library.
"""
