/* SPDX-License-Identifier: BSD-2-Clause */
/* The simulator's controls are there to link. */
#include <culvert/sim.h>

#include <stdio.h>

int main(void)
{
    culvert_sim_reset();
    printf("%llu live streams\n", (unsigned long long)culvert_sim_live("stream"));
    return culvert_sim_live("stream") == 0 ? 0 : 1;
}
