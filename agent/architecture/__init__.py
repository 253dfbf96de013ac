"""The resources of one GPU and the paths between them, as a graph that queries read (docs/architecture.md)."""
