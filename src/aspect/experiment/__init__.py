"""Grids of runs: what a plan asks for, cell by cell, and the record that each cell leaves."""
