"""Metrics: pure functions of arrays. Codes are numpy arrays or scipy CSR; scikit-learn is imported when it is needed.

>>> import numpy as np
>>> from sparsevae import metrics
>>> Z = np.eye(3)
>>> round(metrics.average_hoyer(Z), 6), round(metrics.aggregate_hoyer(Z), 6)
(1.0, 0.0)

Each row has one active unit, and all units are used equally over the rows: the code is sparse and distributed.
"""

from sparsevae.metrics.correlation import (
    BestMatch,
    Presence,
    best_match,
    block_purity,
    contrast,
    correlation_matrix,
    presence_accuracy,
    units_per_group,
    used_units,
)
from sparsevae.metrics.disentanglement import (
    DCI,
    dci,
    dci_completeness,
    dci_disentanglement,
    mig,
    modularity,
    sap,
)
from sparsevae.metrics.factors import mutual_information
from sparsevae.metrics.multilabel import (
    Interval,
    LabelTable,
    bootstrap_interval,
    cardinality,
    label_table,
    macro_f1,
    micro_f1,
)
from sparsevae.metrics.probe import linear_probe
from sparsevae.metrics.sparsity import (
    ClassHoyer,
    CodeHoyer,
    active_units,
    aggregate_hoyer,
    average_hoyer,
    class_hoyer,
    code_hoyer,
    hoyer,
)
from sparsevae.metrics.stability import Matching, match_units, seed_stability
from sparsevae.metrics.usage import Usage, code_usage
from sparsevae.metrics.words import (
    at_equal,
    class_gates,
    class_word_divergence,
    class_words,
    coherence,
    diversity,
    top_rows,
    top_words,
    word_counts,
)

__all__ = [
    "DCI",
    "BestMatch",
    "ClassHoyer",
    "CodeHoyer",
    "Interval",
    "LabelTable",
    "Matching",
    "Presence",
    "Usage",
    "active_units",
    "aggregate_hoyer",
    "at_equal",
    "average_hoyer",
    "best_match",
    "block_purity",
    "bootstrap_interval",
    "cardinality",
    "class_gates",
    "class_hoyer",
    "class_word_divergence",
    "class_words",
    "code_hoyer",
    "code_usage",
    "coherence",
    "contrast",
    "correlation_matrix",
    "dci",
    "dci_completeness",
    "dci_disentanglement",
    "diversity",
    "hoyer",
    "label_table",
    "linear_probe",
    "macro_f1",
    "match_units",
    "micro_f1",
    "mig",
    "modularity",
    "mutual_information",
    "presence_accuracy",
    "sap",
    "seed_stability",
    "top_rows",
    "top_words",
    "units_per_group",
    "used_units",
    "word_counts",
]
