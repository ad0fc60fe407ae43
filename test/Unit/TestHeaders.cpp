//===- TestHeaders.cpp - The program of the tests' precompiled headers ----===//

int main() { return 0; }
