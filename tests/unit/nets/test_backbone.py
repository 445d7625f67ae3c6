"""Backbones: the split, the three kinds of input, weights from files, exactness of stored outputs."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from warmpot.errors import InputError, MissingExtraError
from warmpot.nets._split import split_network, split_points
from warmpot.nets.backbone import (
    BLOCK,
    Backbone,
    BackboneSettings,
    _make_network,
    build_backbone,
    check_weights,
    import_timm,
)

if importlib.util.find_spec("timm") is None:  # not importorskip: its import may need mending
    pytest.skip("needs timm", allow_module_level=True)
WEIGHTS = Path(__file__).parents[4] / "shared" / "data" / "weights"
LITE = "tf_efficientnet_lite0"
SMALL = "resnet10t"
CASES = {
    "resnet50": ("layer4", 64),
    "resnet50_v1": ("layer4", 64),
    LITE: ("blocks.6", 64),
    "vit_small_patch16_224": ("blocks.11", 224),
    "convnext_tiny": ("stages.3", 64),
}


def pixels(n: int, side: int = 64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=generator)


def random_backbone(name: str = SMALL, train_from: str | None = "layer4", **more: str | int) -> Backbone:
    return build_backbone(BackboneSettings(name, "none", train_from, **more))


def randomised(backbone: Backbone) -> Backbone:
    """Give BatchNorm statistics and all: fresh ones would hide a mistake."""
    generator = torch.Generator().manual_seed(1)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(0.1 * torch.randn(module.num_features, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=generator))
    return backbone


class TestSplit:
    @pytest.mark.parametrize("name", CASES)
    def test_halves_make_the_whole(self, name):
        part, side = CASES[name]
        whole, halves = random_backbone(name, None).eval(), random_backbone(name, part).eval()
        x = pixels(2, side)
        found = halves(x)
        torch.testing.assert_close(found, whole(x), rtol=1e-4, atol=1e-5)  # layouts differ, hence the last digits
        assert torch.equal(found, halves(halves.stem(x)))
        assert found.shape == (2, halves.width)
        assert found.std() > 1e-3
        assert part in split_points(_make_network(halves.settings.name, 0))
        held = dict(whole.stem.body.named_parameters())
        split = dict(halves.stem.body.named_parameters()) | dict(halves.tail.named_parameters())
        assert split.keys() == held.keys()
        assert len(split) == sum(1 for _ in halves.parameters())  # nothing is in both
        assert all(torch.equal(split[key], held[key]) for key in held)

    def test_split_points_are_in_order_and_each_can_be_used(self):
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
        x = torch.randn(5, 3)
        assert split_points(net) == ["0", "2", "2.0", "2.1"]
        for part in split_points(net):
            first, second = split_network(net, part)
            assert torch.equal(second(first(x)), net(x))

    def test_two_tensors_across_the_split_are_refused(self):
        class Skip(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two, self.three = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

            def forward(self, x):
                y = self.one(x)
                return self.three(y + self.two(y))

        with pytest.raises(InputError, match=r"'inner'.*allowed: null, \"all\", one, two, three"):
            split_network(Skip(), "inner")
        assert split_points(Skip()) == ["one", "two", "three"]

        class Wide(Skip):
            def forward(self, x):
                y = self.one(x)
                return self.three(self.two(y)) + y

        assert split_points(Wide()) == ["one", "two"]
        with pytest.raises(InputError, match="'three', before which no single tensor passes"):
            split_network(Wide(), "three")

    def test_parameters_on_both_sides_are_refused_and_buffers_are_copied(self):
        class Shared(nn.Module):
            def __init__(self, kind):
                super().__init__()
                self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
                if kind == "parameter":
                    self.shift = nn.Parameter(torch.ones(3))
                else:
                    self.register_buffer("shift", torch.ones(3))

            def forward(self, x):
                return self.two(self.one(x) + self.shift) + self.shift

        assert split_points(Shared("parameter")) == ["one"]
        net = Shared("buffer")
        first, second = split_network(net, "two")
        x = torch.randn(2, 3)
        assert torch.equal(second(first(x)), net(x))
        assert first.shift.data_ptr() != second.shift.data_ptr()

    def test_unknown_parts_are_named(self):
        with pytest.raises(
            InputError, match=r"train_from: got 'layer5'.*layer3, layer3.0, layer4.*Did you mean 'layer"
        ):
            random_backbone(train_from="layer5")

    def test_networks_that_cannot_be_traced_say_what_can_be_done(self):
        class Loop(nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x

        with pytest.raises(InputError, match="cannot be split"):
            split_points(Loop())


class TestDoors:
    def test_pooled_features_pass(self):
        features = torch.randn(3, 512)
        assert random_backbone()(features) is features

    def test_kept_activations_in_half_precision_are_taken(self):
        backbone = random_backbone().eval()
        kept = backbone.stem(pixels(2))
        torch.testing.assert_close(backbone(kept.half()), backbone(kept), rtol=0.02, atol=0.02)

    def test_floats_are_no_pixels(self):
        with pytest.raises(InputError, match="uint8 pixels"):
            random_backbone(train_from=None)(torch.rand(2, 3, 64, 64))

    def test_activations_after_the_pooling_are_refused(self):
        # they could not be told from pooled features
        backbone = random_backbone("vit_tiny_patch16_224.augreg_in21k", "norm")
        backbone.stem.body = nn.Flatten()
        with pytest.raises(InputError, match="after the pooling"):
            backbone(pixels(1))


class TestExactness:
    def test_a_batch_does_not_change_an_image(self):
        stem = randomised(random_backbone(LITE, "blocks.6")).stem
        x = pixels(4 * BLOCK + 1)  # from 16 images on, the convolutions round otherwise than for one
        together = stem(x)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        assert torch.equal(torch.cat([stem(x[k : k + 1]) for k in range(len(x))]), together)
        assert torch.equal(torch.cat([stem(x[:3]), stem(x[3:])]), together)
        assert torch.equal(stem(x[order]), together[order])

    def test_a_step_from_kept_activations_is_the_step_from_pixels(self):
        x = pixels(6)
        steps = []
        for door in ("pixels", "kept"):
            backbone = randomised(random_backbone(LITE, "blocks.6")).train()
            kept = torch.from_numpy(torch.cat([backbone.stem(x[:1]), backbone.stem(x[1:])]).numpy().copy())
            backbone(x if door == "pixels" else kept).square().mean().backward()
            steps.append([p.grad for p in backbone.parameters() if p.requires_grad] + list(backbone.buffers()))
        assert all(torch.equal(a, b) for a, b in zip(*steps, strict=True))


class TestModes:
    def test_the_stem_is_frozen(self):
        backbone = random_backbone().train()
        before = copy.deepcopy(backbone.stem.state_dict())
        backbone(pixels(4)).sum().backward()
        assert not any(p.requires_grad for p in backbone.stem.parameters())
        assert all(p.grad is not None for p in backbone.tail.parameters())
        assert not any(module.training for module in backbone.stem.modules())
        assert all(torch.equal(before[key], value) for key, value in backbone.stem.state_dict().items())

    @pytest.mark.parametrize("kind", ["train", "frozen"])
    def test_batch_norm(self, kind):
        backbone = random_backbone(batch_norm=kind).train()
        norm = next(module for module in backbone.tail.modules() if isinstance(module, nn.BatchNorm2d))
        before = norm.running_mean.clone()
        backbone(pixels(4)).sum().backward()
        assert torch.equal(norm.running_mean, before) == (kind == "frozen")
        assert norm.weight.grad is not None
        assert not backbone.eval().tail.training

    def test_synchronised_batch_norm_keeps_names(self):
        plain, sync = random_backbone(LITE, "blocks.6"), random_backbone(LITE, "blocks.6", batch_norm="sync")
        assert any(isinstance(module, nn.SyncBatchNorm) for module in sync.tail.modules())
        assert list(sync.state_dict()) == list(plain.state_dict())
        sync.load_state_dict(plain.state_dict())
        assert torch.equal(sync.eval()(pixels(2)), plain.eval()(pixels(2)))  # activations of the norm layers included

    @pytest.mark.parametrize(
        ("network", "train_from", "side"), [("test_vit", "all", 160), ("vit_tiny_patch16_224", "blocks.11", 224)]
    )
    def test_low_rank_updates_start_at_nothing_and_are_all_that_is_trained(self, network, train_from, side):
        plain, adapted, loaded = (random_backbone(network, train_from, lora=rank) for rank in (0, 4, 4))
        x = pixels(2, side)
        assert torch.equal(adapted.eval()(x), plain.eval()(x))
        trained = {name for name, p in adapted.named_parameters() if p.requires_grad}
        assert trained
        assert {name.rpartition(".")[2] for name in trained} == {"down", "up"}
        assert all(".attn." in name for name in trained)
        optimiser = torch.optim.SGD([p for p in adapted.parameters() if p.requires_grad], lr=0.1)
        for _ in range(2):  # the gradient of `down` is 0 at first
            optimiser.zero_grad()
            adapted.train()(x).square().sum().backward()
            optimiser.step()
        before, after = dict(plain.named_modules()), dict(adapted.named_modules())
        for name in {name.rpartition(".")[0] for name in trained}:
            layer = after[name]
            assert torch.equal(layer.linear.weight, before[name].weight)
            assert layer.up.any()
            assert (layer.up.shape[1], layer.down.shape[0]) == (4, 4)
            torch.testing.assert_close(layer.weight, before[name].weight + layer.up @ layer.down)
        loaded.load_state_dict(adapted.state_dict())
        copied = pickle.loads(pickle.dumps(copy.deepcopy(adapted))).eval()
        assert torch.equal(loaded.eval()(x), copied(x))
        assert not torch.equal(copied(x), plain(x))

    def test_low_rank_updates_need_attention_that_is_trained(self):
        with pytest.raises(InputError, match="without attention"):
            random_backbone(lora=4)
        with pytest.raises(InputError, match="not trained"):
            random_backbone("test_vit", None, lora=4)
        with pytest.raises(InputError, match="1 to 64"):
            random_backbone("test_vit", "all", lora=65)

    def test_micro_batches_give_the_gradients_of_the_batch_and_keep_less(self):
        x, grads, kept = pixels(7), [], []
        for size in (0, 2):
            backbone = randomised(random_backbone(batch_norm="frozen", micro_batch=size)).train()
            stored: list[Tensor] = []
            with torch.autograd.graph.saved_tensors_hooks(lambda t, s=stored: s.append(t) or t, lambda t: t):
                y = backbone(x)
            (y.double() ** 2).sum(dim=1).softmax(dim=0).log().sum().backward()  # of all images together
            grads.append([p.grad for p in backbone.tail.parameters()])
            kept.append(sum(tensor.numel() for tensor in stored))
            assert torch.equal(backbone.eval()(x), backbone(x))
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(one.abs().max()))
        assert kept[1] < kept[0] / 2  # inputs of the trained part only

    @pytest.mark.parametrize(("network", "train_from", "side"), [(SMALL, "layer4", 64), ("test_vit", "all", 160)])
    def test_channels_last_changes_the_layout_only(self, network, train_from, side):
        plain, other = (random_backbone(network, train_from, channels_last=last) for last in (False, True))
        assert list(plain.state_dict()) == list(other.state_dict())
        layouts = [p.is_contiguous(memory_format=torch.channels_last) for p in other.tail.parameters() if p.ndim == 4]
        assert layouts
        assert all(layouts)
        torch.testing.assert_close(other.eval()(pixels(2, side)), plain.eval()(pixels(2, side)), rtol=1e-4, atol=1e-5)

    def test_everything_or_nothing_is_trained(self):
        everything, nothing = random_backbone(train_from="all"), random_backbone(train_from=None)
        assert all(p.requires_grad for p in everything.parameters())
        assert not any(p.requires_grad for p in nothing.parameters())
        x = pixels(2)
        torch.testing.assert_close(everything.eval()(x), nothing.train()(x), rtol=1e-4, atol=1e-5)
        assert everything.stem(x).shape == x.shape

    def test_normalisation_is_the_weights(self):
        backbone = random_backbone(LITE, "all")
        assert backbone.normalise.mean.tolist() == [0.5, 0.5, 0.5]
        assert backbone.stem(torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)).unique().item() == 1.0
        assert backbone.view.crop == 224
        v1 = random_backbone("resnet50_v1", "all")
        torch.testing.assert_close(v1.normalise.mean * 255, torch.tensor([123.68, 116.779, 103.939]))
        assert v1.view == (256, 224, "bilinear", False)
        assert [v1.tail.layer3[0].conv1.stride, v1.tail.layer3[0].conv2.stride] == [(2, 2), (1, 1)]


class TestStoring:
    def test_tensors_can_be_saved_and_restored(self, tmp_path):
        first = randomised(random_backbone()).eval()
        save_file({key: tensor.contiguous() for key, tensor in first.state_dict().items()}, tmp_path / "b.safetensors")
        from safetensors.torch import load_file

        second = build_backbone(first.settings, seed=5).eval()
        assert not torch.equal(second(pixels(2)), first(pixels(2)))
        second.load_state_dict(load_file(tmp_path / "b.safetensors"))
        assert torch.equal(second(pixels(2)), first(pixels(2)))
        assert "tail.layer4.0.conv1.weight" in second.state_dict()

    def test_copies_work(self):
        first = random_backbone().eval()
        for second in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
            assert torch.equal(second(pixels(2)), first(pixels(2)))

    def test_seeds_rule_random_weights_and_no_global_state(self):
        state = torch.random.get_rng_state()
        first, again, other = (build_backbone(BackboneSettings(SMALL, "none"), seed=s).eval() for s in (1, 1, 2))
        assert torch.equal(torch.random.get_rng_state(), state)
        assert torch.equal(first(pixels(1)), again(pixels(1)))
        assert not torch.equal(first(pixels(1)), other(pixels(1)))

    def test_it_can_be_exported_for_any_batch(self):
        backbone = random_backbone().eval()
        batch = torch.export.Dim("n", min=2, max=64)
        program = torch.export.export(backbone, (pixels(2),), dynamic_shapes=({0: batch},))
        torch.testing.assert_close(program.module()(pixels(5)), backbone(pixels(5)), rtol=1e-4, atol=1e-5)


class TestWeights:
    @pytest.fixture
    def held(self):
        held = random_backbone(train_from="all").tail.state_dict()
        held["conv1.0.weight"] = held["conv1.0.weight"] + 1.0
        return held

    def load(self, file: Path) -> Backbone:
        return build_backbone(BackboneSettings(SMALL, str(file), "all"))

    @pytest.mark.parametrize("kind", ["safetensors", "pth", "wrapped"])
    def test_files(self, held, tmp_path, kind):
        half = {key: tensor.half() if tensor.ndim == 4 else tensor for key, tensor in held.items()}
        half = {f"module.{key}": tensor for key, tensor in half.items()} | {"fc.weight": torch.ones(3, 512)}
        file = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
        if kind == "safetensors":
            save_file(half, file)
        else:
            torch.save({"state_dict": half, "epoch": 3} if kind == "wrapped" else half, file)
        found = self.load(file).tail.state_dict()
        assert all(torch.equal(found[key], half[f"module.{key}"].to(found[key].dtype)) for key in held)
        assert found["conv1.0.weight"].dtype == torch.float32

    def test_keys_that_do_not_fit_are_named(self, held, tmp_path):
        held["odd"] = held.pop("conv1.0.weight")
        held["bn1.weight"] = torch.ones(7)
        torch.save(held, tmp_path / "w.pt")
        text = r"1 missing \('conv1.0.weight'\); 1 unknown \('odd'\); 1 of another shape \('bn1.weight'\)"
        with pytest.raises(InputError, match=text):
            self.load(tmp_path / "w.pt")

    def test_files_that_are_none(self, tmp_path):
        with pytest.raises(InputError, match=r"No such file.*Name a \.safetensors"):
            self.load(tmp_path / "absent.pth")
        for name in ("w.safetensors", "w.pth"):
            (tmp_path / name).write_text("no tensors")
            with pytest.raises(InputError, match=f"weights .*{name}"):
                self.load(tmp_path / name)
        torch.save([1, 2], tmp_path / "list.pth")
        with pytest.raises(InputError, match="something other than named tensors"):
            self.load(tmp_path / "list.pth")
        torch.save(Path("evil"), tmp_path / "object.pth")
        with pytest.raises(InputError, match="UnpicklingError"):
            self.load(tmp_path / "object.pth")

    def test_an_unreachable_hub_is_asked_once(self, monkeypatch, tmp_path):
        calls = []

        def refuse(address, timeout):
            calls.append((address, timeout))
            raise OSError("Name or service not known")

        monkeypatch.setattr("warmpot.nets.backbone.getproxies", dict)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr("socket.create_connection", refuse)
        monkeypatch.setattr(import_timm(), "create_model", lambda *_, **__: pytest.fail("it would try for a minute"))
        with pytest.raises(InputError, match=r"huggingface.co cannot be reached: Name or .* Name a file"):
            build_backbone(BackboneSettings("resnet18.tv_in1k"))
        (call,) = calls
        assert call[0] == ("huggingface.co", 443)
        with pytest.raises(InputError, match="timm has none"):
            check_weights(BackboneSettings("resnet50_v1"))
        check_weights(BackboneSettings("resnet18.tv_in1k", weights="none"))

    def test_downloads_that_fail_name_the_remedy(self, monkeypatch):
        def offline(*args, **kwargs):
            raise OSError("no route to host")

        monkeypatch.setattr(import_timm(), "create_model", offline)
        monkeypatch.setattr("warmpot.nets.backbone.check_weights", lambda _: None)
        with pytest.raises(InputError, match=r"no route to host.*weights=PATH"):
            build_backbone(BackboneSettings())

    @pytest.mark.parametrize(("name", "part"), [(LITE, "blocks.6"), ("resnet50_v1", "layer4")])
    def test_real_files(self, name, part):
        file = WEIGHTS / f"{name}.safetensors"
        if not file.exists():
            pytest.skip(f"needs {file}")
        backbone = build_backbone(BackboneSettings(name, str(file), part)).eval()
        found = backbone(pixels(1))
        assert found.shape == (1, backbone.width)
        assert torch.isfinite(found).all()


class TestSettings:
    def test_names_are_checked(self):
        with pytest.raises(InputError, match="Did you mean resnet50"):
            build_backbone(BackboneSettings("resnet5O", "none"))
        with pytest.raises(InputError, match="batch_norm"):
            BackboneSettings(batch_norm="off")
        with pytest.raises(InputError, match="weights: got nothing"):
            BackboneSettings(weights="")


class TestImport:
    def test_a_fresh_interpreter_imports_timm(self):
        code = (
            "import sys, warmpot, warmpot.nets; assert 'timm' not in sys.modules and 'torchvision' not in sys.modules;"
            "from warmpot.nets.backbone import import_timm; print(import_timm().is_model('resnet50'));"
            "import torchvision.transforms"
        )
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
        assert done.stdout.strip() == "True", done.stderr

    def test_a_healthy_torchvision_is_left_alone(self, monkeypatch):
        import_timm()
        before = sys.modules["torchvision"]
        import_timm()
        assert sys.modules["torchvision"] is before

    @pytest.mark.parametrize("name", ["timm", "torchvision"])
    def test_an_absent_package_names_the_extra(self, monkeypatch, name):
        find = importlib.util.find_spec
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(importlib.util, "find_spec", lambda word, *a: None if word == name else find(word, *a))
        with pytest.raises(MissingExtraError, match=rf"{name}: got not installed.*warmpot\[vision\]"):
            import_timm()
