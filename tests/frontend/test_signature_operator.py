"""The contract of an operator, read off the signature of its function."""

import copy
import pickle
from collections.abc import Sequence

import jax
import pytest

import jaxops as jo
from jaxops.errors import SignatureError
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.graph.operator import WrappedOperator
from jaxops.signature import SHAPE_ONLY, STATIC, ShapeOnly, StaticInts
from jaxops.static import Array


def marked(x: Array, sizes: StaticInts, like: ShapeOnly | None = None, *, mode: str = "plain"):
    return x, sizes, like, mode


def listed(xs: Sequence[Array], *, n_outputs: int = 1, rng: jax.Array | None = None):
    return xs, n_outputs, rng


def test_inputs_and_their_marks_come_from_the_positional_parameters():
    operator = SignatureOperator("Marked", marked)
    assert operator.formals == ["x", "sizes", "like"]
    assert [operator.mark(k) for k in range(3)] == [None, STATIC, SHAPE_ONLY]
    assert [operator.is_vector(k) for k in range(3)] == [False, True, False]
    assert (operator.foldable, operator.draws, operator.sized_by_data, operator.keeps_sizes) == (False,) * 4
    assert operator.call([1, 2, None], {"mode": "b"}, n_outputs=4, rng=None) == (1, 2, None, "b")


def test_a_format_names_the_inputs_and_may_have_fewer_or_any_number():
    assert SignatureOperator("Marked", marked, ["data"]).mark(2) is None
    operator = SignatureOperator("Listed", listed, ["a", "bs"], variadic=True)
    assert operator.draws
    assert SignatureOperator("Listed", lambda a, bs: (a, bs), ["a", "bs"], True).call(
        [1, 2, 3], {}, n_outputs=2, rng=None
    ) == (1, [2, 3])


def test_what_a_node_asks_for_and_the_key_are_no_attributes():
    operator = SignatureOperator("Listed", listed, variadic=True)
    assert operator.call([1, 2], {}, n_outputs=3, rng="key") == ([1, 2], 3, "key")
    operator.check_node(["a", "b"], {})
    with pytest.raises(SignatureError, match=r"Listed: .*'mode'; the node has 1 input and the attributes \['mode'\]"):
        operator.check_node(["a"], {"mode": 1})


def test_operators_of_jaxops_keep_their_contract():
    assert SignatureOperator("Add", jo.add).foldable
    assert SignatureOperator("NonZero", jo.nonzero).sized_by_data
    assert not SignatureOperator("LRN", jo.lrn).sized_by_data
    assert not SignatureOperator("AffineGrid", jo.affine_grid).sized_by_data
    assert SignatureOperator("If", jo.if_).subgraphs.keys() == {"then_branch", "else_branch"}


def test_an_operator_without_a_function_has_no_marks():
    operator = SignatureOperator("Call", None, ["x"])
    assert operator.mark(0) is None
    assert not any([operator.foldable, operator.draws, operator.subgraphs, operator.sized_by_data])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_it_is_copied_and_pickled_after_it_was_read(copied):
    operator = SignatureOperator("Marked", marked)
    assert operator.parameters.keys() == {"x", "sizes", "like", "mode"}
    again = copied(operator)
    assert (again.name, again.fn, again.formals, again.mark(1)) == ("Marked", marked, operator.formals, STATIC)


def test_another_function_of_the_same_signature():
    operator = SignatureOperator("Marked", marked)
    other = operator.with_function(lambda *operands, **attributes: len(operands))
    assert other.call([1, 2], {}, n_outputs=1, rng=None) == (2,)
    assert operator.call([1, 2], {}, n_outputs=1, rng=None)[0] == 1


def test_a_wrapped_operator_is_the_other_in_what_it_does_not_say():
    class Loud(WrappedOperator):
        def call(self, inputs, attributes, *, n_outputs, rng):
            return [f"{y}!" for y in self.inner.call(inputs, attributes, n_outputs=n_outputs, rng=rng)]

    operator = Loud(SignatureOperator("Marked", marked))
    assert (operator.name, operator.mark(1)) == ("Marked", STATIC)
    assert operator.call([1, 2], {}, n_outputs=4, rng=None) == ["1!", "2!", "None!", "plain!"]
    assert copy.deepcopy(operator).formals == ["x", "sizes", "like"]
    with pytest.raises(AttributeError):
        operator.missing  # noqa: B018
