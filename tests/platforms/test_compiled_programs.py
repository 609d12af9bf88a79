"""Operators, models, steps of training and decoding, pairs and exports compile for devices that are not there."""

import re
import sys
from pathlib import Path

from batches import BATCH, outcomes

HERE = Path(__file__).parent
# What programs that do not compile have in their names → what the error says.
REFUSED = {
    # How large the result is depends on data.
    "compress|nonmaxsuppression|nonzero|unique": r"UnboundedError: .* traced",
    # It draws random numbers, and gets no key.
    "bernoulli": r"MissingKeyError: .* needs a random key",
}
# Most arrays of 2 bits with one axis, or with fewer than 16 rows, have no layout there: as arguments they end the
# process, whatever reads them. All of the suite are arguments or results. Those of 4 bits compile.
OF_A_TPU = {
    "to_U?INT2|to_int2|quantizelinear_u?int2": r"INT2 is not supported for (second )?minor size",
    "castl?i?k?e?_U?INT2_to|dequantizelinear_u?int2": r"ended with -6: ",
}


def wrong(results, refused):
    """Returns what is not as listed: programs that do not compile, and those that compile although they are listed."""
    found = {}
    for name, error in results.items():
        texts = [text for part, text in refused.items() if re.search(part, name)]
        if error and not any(re.search(text, error, re.DOTALL) for text in texts):
            found[name] = error
    return found


def test_programs_compile(platform, request):
    from compiled_programs import programs

    every = sorted(programs())
    suite = [name for name in every if name.startswith("suite/")]
    step = 32 if platform == "tpu" else 1 if request.config.getoption("all") else 16
    assert len(suite) > 1800
    names = suite[::step] + [name for name in every if name not in set(suite)]
    results = outcomes([sys.executable, str(HERE / "compile_process.py"), platform], names)
    assert wrong(results, REFUSED | (OF_A_TPU if platform == "tpu" else {})) == {}
    assert sum(map(bool, results.values())) < len(names) / 20


CHILD = """
import json, os, sys
for name in sys.argv[1:]:
    if name == "7":
        print("the compiler says why", file=sys.stderr, flush=True)
        os.abort()
    print(json.dumps([name, "odd" if int(name) % 2 else ""]), flush=True)
"""


def test_a_process_that_ends_costs_one_case():
    names = [str(k) for k in range(2 * BATCH + 3)]
    found = outcomes([sys.executable, "-c", CHILD], names)
    assert list(found) == names
    assert found.pop("7") == "ended with -6: the compiler says why"
    assert found == {name: "odd" if int(name) % 2 else "" for name in names if name != "7"}


def test_what_is_not_listed_is_wrong():
    results = {"suite/abs": "", "suite/nonzero": "UnboundedError: x is traced", "suite/add": "Error: x"}
    assert wrong(results, REFUSED) == {"suite/add": "Error: x"}
    assert wrong({"suite/nonzero": "ended with -6: "}, REFUSED) == {"suite/nonzero": "ended with -6: "}
