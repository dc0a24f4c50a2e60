#!/usr/bin/env python3
"""The recipes name the version, the options and the dependencies that CMakeLists.txt has; a tarball configures by these options.

packaging_test.py: packaging/vcpkg, packaging/conda, python/, CHANGELOG.md, and what docs/ says of the version.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What CMake finds, as vcpkg and conda call it.
NAMES = {"FALTUNG_HWY": ("highway", "libhwy"), "FALTUNG_PROTOZERO": ("protozero", "protozero"), "FALTUNG_ZSTD": ("zstd", "zstd-static"),
         "FALTUNG_VULKAN": ("vulkan-headers", "libvulkan-headers"),
         "fmt": ("fmt", "fmt"), "nlohmann_json": ("nlohmann-json", "nlohmann_json"), "CLI11": ("cli11", "cli11")}


def read(path):
    return (ROOT / path).read_text()


def check(errors, right, what):
    if not right:
        errors.append(what)


def found_by_cmake():
    text = read("CMakeLists.txt") + read("tools/CMakeLists.txt")
    names = set(re.findall(r"^find_package\((\w+)", text, re.M)) | set(re.findall(r"^find_(?:path|library)\((\w+)", text, re.M))
    return {name.removesuffix("_INCLUDE") for name in names} - {"Threads"}


def recipes(version):
    errors = []
    port = json.loads(read("packaging/vcpkg/vcpkg.json"))
    conda = read("packaging/conda/recipe.yaml")
    check(errors, port["version"] == version, f"vcpkg.json is of {port['version']}, CMakeLists.txt of {version}")
    check(errors, f'version: "{version}"' in conda, f"recipe.yaml is not of {version}")
    check(errors, f"\n## {version}" in read("CHANGELOG.md"), f"CHANGELOG.md has no {version}")
    minor = version.rsplit(".", 1)[0]
    for page in ("docs/packages.md", "docs/tutorial.md", "README.md"):
        asked = set(re.findall(r"find_package\(faltung ([\d.]+)", read(page)))
        check(errors, asked == {minor}, f"{page} asks for {asked}, and it is {minor}")
    for recipe, other in (("python/pyproject.toml", "faltung-hopper"), ("python/hopper/pyproject.toml", "faltung")):
        check(errors, f'["{other}=={version}"]' in read(recipe), f"{recipe} does not ask for {other}=={version}")
    known = found_by_cmake()
    check(errors, known == set(NAMES), f"CMake finds {sorted(known)}, the recipes know of {sorted(NAMES)}")
    dependencies = [d if isinstance(d, str) else d["name"] for d in port["dependencies"]] + port["features"]["tools"]["dependencies"]
    for of_vcpkg, of_conda in NAMES.values():
        check(errors, of_vcpkg in dependencies, f"vcpkg.json needs {of_vcpkg}")
        check(errors, f"    - {of_conda}\n" in conda, f"recipe.yaml needs {of_conda}")
    options = re.findall(r"-D(FALTUNG_\w+)=", conda + read("packaging/vcpkg/portfile.cmake"))
    for option in options:
        check(errors, f"option({option} " in read("CMakeLists.txt"), f"no option {option}")
    check(errors, "\t" not in conda, "recipe.yaml has tabs")
    return errors, sorted(set(options))


def tarball_configures(options):
    """Without a network and without git's files. None where there is no git, or this is a tarball."""
    with tempfile.TemporaryDirectory(prefix="faltung_tarball_") as folder:
        tar = subprocess.run(["git", "-C", ROOT, "archive", "--prefix=faltung/", "HEAD"], capture_output=True)
        if tar.returncode != 0:
            return None
        subprocess.run(["tar", "-x", "-C", folder], input=tar.stdout, check=True)
        alone = ["unshare", "-rn"] if subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0 else []
        done = subprocess.run([*alone, "cmake", "-S", folder + "/faltung", "-B", folder + "/build", "-G", "Ninja",
                               *[f"-D{option}=OFF" for option in options]], capture_output=True, text=True)
        return done.returncode == 0 or done.stdout + done.stderr


def main():
    version = re.search(r"project\(faltung VERSION ([\d.]+)", read("CMakeLists.txt"))[1]
    errors, options = recipes(version)
    configured = tarball_configures(options)
    if configured is None:
        print("no git: the tarball is left out")
    elif configured is not True:
        errors.append(f"the tarball does not configure: {configured}")
    for error in errors:
        print(error)
    print(f"version {version}, options {', '.join(options)}: {len(errors)} wrong")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
