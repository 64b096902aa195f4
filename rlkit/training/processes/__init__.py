"""Several processes that train one run: how they start, agree, share arrays, and end together."""
