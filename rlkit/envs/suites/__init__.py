"""The suites: which there are, who creates an id, and an adapter for each that rlkit adapts."""
