"""The verbs of darkroom as jobs of a Ray cluster: `darkroom-ray VERB ...` (docs/cluster.md).

Ray places and retries; what is done, and that it is done once, is the program's: an item commits itself.
"""
