import subprocess
import sys

HEAVY = ("torch", "ray", "vllm", "transformers", "ultralytics", "segment_anything")


def test_importing_glit_and_its_command_line_loads_no_model_library():
    code = (
        "import sys, glit, glit.cli.main\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
