"""The catalogue of events, subjects, streams and consumers, and the codec."""
