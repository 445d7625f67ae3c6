"""Serve a finished run over HTTP: samples in, classes with confidences out.

pip install fastapi uvicorn
warmpot demo && python examples/serve.py demo/full     then open http://127.0.0.1:8000/docs
"""

from __future__ import annotations

import sys
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

import warmpot


class Samples(BaseModel):
    """One row per sample, with the features in the order of training."""

    samples: list[list[float]]


class Prediction(BaseModel):
    """The most probable class, and its probability."""

    label: str
    confidence: float


def make_app(run: str) -> FastAPI:
    model = warmpot.load(run).predictor  # read once, shared by all requests
    app = FastAPI(title="warmpot", description=repr(model))

    @app.get("/")
    def facts() -> dict[str, Any]:
        return {"classes": model.classes, "features": model.width, "columns": model.columns}

    @app.post("/predict")
    def predict(body: Samples) -> list[Prediction]:
        try:
            shares = model.probabilities(body.samples, "samples")
        except warmpot.InputError as error:  # says what is wrong with the samples
            raise HTTPException(422, str(error)) from error
        return [Prediction(label=model.classes[row.argmax()], confidence=row.max()) for row in shares]

    return app


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(make_app(sys.argv[1]), host="127.0.0.1", port=8000)
