"""The TDD proof: the engine runs the tests on several trees, and does not trust an agent's word.

`trees`, `variants`, `behaviour` and `hollow` make the trees to compare. `claims` and `harness` compare the texts of
tests and test settings. `rules` is the proof: a pure function from facts to the next tree to run, or to the verdict.
"""
