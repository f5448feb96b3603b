"""A contract of import-linter that lists the allowed imports."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

__all__ = ["AllowedImports"]


class AllowedImports(Contract):
    """
    A contract with a list of the allowed imports from one package by other packages.

    Only direct imports count.  Options:

    * ``importers``: the importing packages, including all modules below them.
    * ``imported``: the package that contains the imported modules.
    * ``allowed``: modules of the imported package; ``name.*`` includes modules below.
    """

    type_name = "allowed"

    importers = fields.SetField(subfield=fields.StringField())
    imported = fields.StringField()
    allowed = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find the imports that are not in the list."""
        package = str(self.imported)
        broken: list[str] = []
        unused = set(self.allowed)  # type: ignore[call-overload]
        for importer in sorted(graph.modules):
            if not any(_is_in(importer, str(one)) for one in self.importers):  # type: ignore[attr-defined]
                continue
            for module in sorted(graph.find_modules_directly_imported_by(importer)):
                if not _is_in(module, package):
                    continue
                matching = {one for one in self.allowed if _allows(one, module)}  # type: ignore[attr-defined]
                unused -= matching
                if not matching:
                    broken.append(f"{importer} -> {module}")
        return ContractCheck(
            kept=not broken and not unused,
            metadata={"broken": broken, "unused": sorted(unused)},
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the imports, and entries of the list that no import needs."""
        for one in check.metadata["broken"]:
            output.print_error(f"{one} is not allowed")
        for one in check.metadata["unused"]:
            output.print_error(f"no import needs the entry {one}")


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _allows(entry: str, module: str) -> bool:
    if entry.endswith(".*"):
        return _is_in(module, entry.removesuffix(".*"))
    return module == entry
