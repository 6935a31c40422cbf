#pragma once

/// Whether `text` is a limit of device memory as the interposer reads it from SLUICE_MEMORY, such
/// as "20GiB" or "none": shm/memory_limit.hpp has the forms, and tests/slurm compares the two. This
/// folder includes no C++.
int sluice_is_memory_limit(const char* text);
