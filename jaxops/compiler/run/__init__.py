"""Runs specialized programs: prepares weights, runs segments, describes the cache of compiled programs."""
