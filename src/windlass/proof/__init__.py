"""TDD is proved, not believed.

`files` tells tests from code; `trees` and `hollow` make the trees that are compared; `reports` reads what ran in them;
`rules` is the proof itself: a function from what was seen to the next tree to look at, or the verdict.
"""
