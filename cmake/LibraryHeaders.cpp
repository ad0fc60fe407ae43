// The source of the targets of precompiled headers (QwenTargets.cmake).
