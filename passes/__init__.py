"""Passes: what a plan is made of.  `registry.registry()` finds them all."""
