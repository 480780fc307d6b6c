"""Estimators for scikit-learn pipelines whose fit is private, and says what it cost."""

from taut._base import surface
from taut.estimators._clusters.kmeans import PrivateKMeans
from taut.estimators._columns.naive_bayes import PrivateGaussianNB
from taut.estimators._columns.scaler import PrivateStandardScaler
from taut.estimators._components.pca import PrivatePCA
from taut.estimators._descent.elastic_net import PrivateElasticNet, PrivateLasso
from taut.estimators._descent.sparse_logistic import PrivateSparseLogisticRegression
from taut.estimators._logistic.logistic_regression import PrivateLogisticRegression
from taut.estimators._posterior.pair import PosteriorPair
from taut.estimators._posterior.release import RidgePosterior, ridge_posterior
from taut.estimators._regression.estimator import PrivateLinearRegression, PrivateRidge

__all__ = [
    "PosteriorPair",
    "PrivateElasticNet",
    "PrivateGaussianNB",
    "PrivateKMeans",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivatePCA",
    "PrivateRidge",
    "PrivateSparseLogisticRegression",
    "PrivateStandardScaler",
    "RidgePosterior",
    "ridge_posterior",
]

surface.claim(globals())
