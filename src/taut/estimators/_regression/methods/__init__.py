"""Methods of private regression, one per module: frozen values with a loss and a fit."""
