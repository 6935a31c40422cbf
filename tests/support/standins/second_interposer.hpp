#pragma once

/// Launches that the second interposer saw.
extern "C" int second_launches();
/// What RTLD_NEXT finds for the second interposer.
extern "C" void* second_next(const char* name);
