"""How fast a build is: ``python -m tools.measure.build [PART ...] -o OUT``.

``floor``    the whole build of scenes against the same models on ready-made tensors
``crops``    crops on the device against one CLIPProcessor call per crop (wants --photos)
``yolos``    the propose stage's detector against one image at a time through the library
``memory``   the driver's memory from 1,000 images to --images

Every part prints a line and writes ``OUT/PART.json``. One thread; CPU seconds where two ways
of the same work are compared, so that a busy machine does not favour either.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from glit.bench.harness import write_json

PARTS = ("floor", "crops", "yolos", "memory")


def main() -> None:
    """Run the named parts."""
    parser = argparse.ArgumentParser(prog="python -m tools.measure.build", description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/bench"))
    parser.add_argument("--photos", type=Path, default=Path("build/photos"))
    parser.add_argument("--scenes", type=int, default=1000)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    from glit.executors.process import prepare_own_process

    prepare_own_process(for_model=True)
    for part in arguments.parts:
        result = globals()[f"{part}_part"](arguments)
        write_json(arguments.output / f"{part}.json", result)


def floor_part(arguments: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    from tools.measure.floor import measure_floor

    report = measure_floor(arguments.scenes)
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.stages_s.items())
    floor = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.floor_s.items())
    print(f"floor: {report.ratio:.3f}x of the bare models ({stages}; floor: {floor})")
    return {**asdict(report), "ratio": report.ratio}


def crops_part(arguments: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    from tools.measure.crops import compare_crops, photographs

    images = photographs(arguments.photos)[:8]
    result = {}
    for backend in ("pil", "torchvision"):
        report = compare_crops(images, "mini-matcher", backend=backend, repeats=arguments.repeats)
        print(f"{report.speed.line()}; smallest cosine {report.cosines.min():.6f}")
        result[backend] = {
            **asdict(report.speed),
            "ratio": report.speed.ratio,
            "smallest_cosine": float(report.cosines.min()),
        }
    return result


def yolos_part(arguments: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    from tools.measure.detector import compare_yolos

    report = compare_yolos(repeats=arguments.repeats)
    print(
        f"{report.speed.line()}; boxes within {report.box_px:.4f} px, "
        f"scores within {report.score:.1e}"
    )
    return {**asdict(report), "ratio": report.speed.ratio}


def memory_part(arguments: argparse.Namespace) -> dict[str, Any]:
    """See the module."""
    from glit.executors.on_ray import RayExecutor
    from tools.measure.scale import driver_memory

    executor = RayExecutor()
    try:
        peaks = driver_memory([1000, arguments.images], executor)
    finally:
        executor.close()
    ratio = peaks[arguments.images] / peaks[1000]
    print(f"memory: {peaks} MB, {ratio:.3f}x from 1000 to {arguments.images} images")
    return {"peaks_mb": peaks, "ratio": ratio}


if __name__ == "__main__":
    main()
