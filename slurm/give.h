#pragma once

/// Whether `text` is what a program may give as the interposer reads it from SLUICE_GIVE, such as
/// "5%" or "0": shm/give.hpp has the forms, and tests/slurm compares the two. This folder includes
/// no C++.
int sluice_is_give(const char* text);
