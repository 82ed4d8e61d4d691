"""Predictors of a factor from a code: (discrete, seed) -> model, function from the fitted model to importances (J,)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from sparsevae.metrics.arrays import Floats

Importance: TypeAlias = "Callable[[Any], Floats]"


def _forest(discrete: bool, seed: int) -> tuple[Any, Importance]:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    # A split may use any unit: among a few random ones it would have to use irrelevant units.
    kind = RandomForestClassifier if discrete else RandomForestRegressor
    model = kind(n_estimators=50, max_features=None, random_state=seed)
    return model, _impurity


def _boosting(discrete: bool, seed: int) -> tuple[Any, Importance]:
    from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

    kind = GradientBoostingClassifier if discrete else GradientBoostingRegressor
    return kind(random_state=seed), _impurity


def _impurity(fitted: Any) -> Floats:
    """Impurity importances of trees, (J,); rounding leaves some of boosting's at -1e-17."""
    weights: Floats = np.asarray(fitted.feature_importances_)
    return weights.clip(min=0.0)


def _lasso(discrete: bool, seed: int) -> tuple[Any, Importance]:
    from sklearn.linear_model import LassoCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    last = (
        LinearSVC(penalty="l1", dual=False, max_iter=20_000, random_state=seed)
        if discrete
        else LassoCV(cv=5, max_iter=20_000)
    )
    model = make_pipeline(StandardScaler(), last)
    return model, lambda fitted: np.abs(np.atleast_2d(fitted[-1].coef_)).mean(0)


PREDICTORS = {"forest": _forest, "boosting": _boosting, "lasso": _lasso}
