"""Searches for the likeliest tokens, which run a decoder in a loop."""

from jaxops.ops.microsoft.search import aggressive_decoding, beams, greedy, sampled_tokens, transcription
from jaxops.ops.microsoft.search.aggressive_decoding import *
from jaxops.ops.microsoft.search.beams import *
from jaxops.ops.microsoft.search.greedy import *
from jaxops.ops.microsoft.search.sampled_tokens import *
from jaxops.ops.microsoft.search.transcription import *

__all__: list[str] = []
__all__ += aggressive_decoding.__all__
__all__ += beams.__all__
__all__ += greedy.__all__
__all__ += sampled_tokens.__all__
__all__ += transcription.__all__
