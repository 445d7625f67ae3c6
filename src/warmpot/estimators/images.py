"""A classifier of images: from folders or arrays to predictions, with a frozen or a trained backbone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from warmpot._settings import merged
from warmpot._typing import FloatArray
from warmpot.data.inputs import of_images, read_samples
from warmpot.errors import InputError
from warmpot.estimators.trained import Classifier

__all__ = ["ImageClassifier"]


@dataclass(eq=False, repr=False)
class ImageClassifier(Classifier):
    """Classify target images that show only some of the source's classes.

    Images pass a pretrained network. Either its features are extracted once (and stored on disk, see
    `warmpot.train.images.prepare`) and adapted, or the network is trained too.

    Parameters
    ----------
    backbone : str
        A model of timm, or "resnet50_v1".
    backbone_weights : str
        "pretrained" (downloaded by timm), or a file: safetensors, or a state dict of torch; "none": random.
    fine_tune : bool or str
        What is trained of the backbone: False, nothing; the name of a block, such as "layer4", the network from there
        on; "all"; True: all of it with a GPU, without one the last block, with `cache`.
    cache : bool
        For a block: store its input for every image on disk, and train on that. Faster; without random crops and flips.
    preset : str, optional
        A recipe of the package. Default: "full" for a backbone that is not trained, and "deep" for one that is.
    corrupt : "raise" or "skip"
        What to do with images that cannot be decoded. Skipped ones have no weights.
    overrides, random_state, progress_bar
        As for `WarmpotClassifier`; image settings are in ``overrides["images"]``.

    Attributes
    ----------
    classes_ : (n_classes,) array
        Classes of the source: names of folders, or the labels in `y`.
    target_proba_, target_classes_, presence_, source_weights_, training_weights_, target_weights_, plan_, history_
        As for `WarmpotClassifier`.
    chosen_step_, config_, predictor_
        As for `WarmpotClassifier`; the predictor takes images.

    Examples
    --------
    >>> model = ImageClassifier("resnet18", backbone_weights="none")
    >>> model.fit("photos/catalogue", X_target="photos/webcam").predict("photos/more")  # doctest: +SKIP
    """

    backbone: str = "resnet50.tv_in1k"
    _: KW_ONLY
    backbone_weights: str = "pretrained"
    fine_tune: bool | str = False
    cache: bool = False
    preset: str | None = None
    corrupt: str = "raise"
    overrides: Mapping[str, Any] | None = None
    random_state: Any = None
    progress_bar: bool | None = False

    def _changes(self) -> dict[str, Any]:
        backbone = {"name": self.backbone, "weights": self.backbone_weights}
        if isinstance(self.fine_tune, str):
            backbone["train_from"] = self.fine_tune
        return {"images": {"backbone": backbone, **({"cache": True} if self.cache else {})}}

    def fit(self, X: Any, y: Any = None, X_target: Any = None, sample_domain: None = None) -> ImageClassifier:
        """Train on labelled source images and unlabelled target images.

        Parameters
        ----------
        X : path, array, tensor or sequence of images
            The source: a folder with one folder per class or a list (labels included), or images as Pillow images,
            arrays (channels first or last) or paths, with their labels in `y`.
        y : sequence, optional
            Source labels; None: those of the folder or list.
        X_target : path, array, tensor or sequence of images
            The target. Names of folders are not used.
        sample_domain : None
            Not supported: pass the two domains separately.

        Returns
        -------
        self
        """
        from warmpot.select.best_iterate import fit_chosen
        from warmpot.train.defaults import config_for_data, task_from_tables

        if sample_domain is not None:
            got, remedy = "given", "Pass the source images in X, the target images in X_target."
            raise InputError("sample_domain", got=got, allowed="None", remedy=remedy)
        for name, data in (("X", X), ("X_target", X_target)):
            if data is None or not of_images(data):
                got = "none" if data is None else f"{type(data).__name__}, which has no images"
                remedy = "For features use WarmpotClassifier."
                raise InputError(name, got=got, allowed="images, or the path of a folder of images", remedy=remedy)
        changes = merged(self._seeded(self.overrides or {}), self._changes())
        config = config_for_data(images=True, preset=self.preset, changes=changes, fine_tune=bool(self.fine_tune))
        source = read_samples(X if y is None else (X, y), name="X", needs_label=True)
        target = read_samples(X_target, name="X_target", labelled=False)
        options: dict[str, Any] = {"corrupt": self.corrupt, "progress_bar": self.progress_bar}
        task, _ = task_from_tables(source, target, config.images, **options)
        fitted = fit_chosen(task, config, progress_bar=self.progress_bar)
        self.classes_ = fitted.predictor.labels
        self._set_fitted(fitted)
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Predict class probabilities of images, in any form that `fit` takes: (n, n_classes), as ``classes_``."""
        check_is_fitted(self)
        return self.predictor_.probabilities(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class of each image: (n,)."""
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels
