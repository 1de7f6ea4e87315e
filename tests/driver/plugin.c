/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A plug-in whose constructor, which the dynamic linker runs under its own lock, calls the program.
 */
void plugin_loaded(void);

__attribute__((constructor)) static void loaded(void)
{
    plugin_loaded();
}
