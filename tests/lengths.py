"""A graph whose lengths, an input, set a size."""

# As the encoders of torchaudio: a mask of as many columns as the longest element has.
MASKED = """main (float[B,T] x, int64[B] lengths) => (float[B,T] y, float[B] mean) {
    zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>() last = Constant<value_ints = [1]>()
    longest = ReduceMax<keepdims = 0>(lengths) places = Range(zero, longest, one)
    ends = Unsqueeze(lengths, last) mask = Less(places, ends) f = Cast<to = 1>(mask)
    t = Tanh(x) y = Mul(t, f)
    total = ReduceSum<keepdims = 0>(y, last) count = Cast<to = 1>(lengths) mean = Div(total, count)
}"""
