/* SPDX-License-Identifier: BSD-2-Clause */
/* Images that the driver does not take, and what its compiler says. */
#include "conformance.h"

#include <string.h>

static char text[1024];

static int load(const void *image)
{
    culvert__CUmodule m = NULL;
    culvert__CUjit_option options[] = {CULVERT__CU_JIT_ERROR_LOG_BUFFER,
                                       CULVERT__CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {text, (void *)(uintptr_t)(sizeof text - 1)};
    memset(text, 0, sizeof text);
    int result = d->cuModuleLoadDataEx(&m, image, 2, options, values);
    if (result == 0)
        NEED(d->cuModuleUnload(m));
    return result;
}

/* The codes that say that the image is at fault, and not the device. */
static bool unfit(int result)
{
    return result == CULVERT__CUDA_ERROR_INVALID_IMAGE ||
           result == CULVERT__CUDA_ERROR_NO_BINARY_FOR_GPU ||
           result == CULVERT__CUDA_ERROR_INVALID_PTX ||
           result == CULVERT__CUDA_ERROR_INVALID_SOURCE ||
           result == CULVERT__CUDA_ERROR_NOT_SUPPORTED;
}

static void no_harm(void)
{
    conf_result("a launch after that", conf_launch("nothing", NULL, NULL), 0);
    conf_result("cuStreamSynchronize", d->cuStreamSynchronize(NULL), 0);
}

static void newer_ptx(void)
{
    conf_result("PTX 99.9", load(".version 99.9\n.target sm_70\n.address_size 64\n"),
                CULVERT__CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    conf_note("%.120s", text);
    conf_true("the log has the version", strstr(text, "99.9") != NULL);
    no_harm();
}

static void bad_ptx(void)
{
    conf_result("PTX with a mistake",
                load(".version 8.0\n.target sm_70\n.address_size 64\nnonsense\n"),
                CULVERT__CUDA_ERROR_INVALID_PTX);
    conf_note("%.120s", text);
    conf_true("the log has the word and the line",
              strstr(text, "nonsense") != NULL && strstr(text, "line 4") != NULL);
    no_harm();
}

static void other_architecture(void)
{
    int major = 0;
    NEED(d->cuDeviceGetAttribute(&major, CULVERT__CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    if (major >= 12) {
        conf_note("no PTX for a later device is known");
        return;
    }
    int result = load(".version 8.7\n.target sm_120\n.address_size 64\n");
    conf_note("PTX for 12.0: %d; %.120s", result, text);
    conf_true("it is refused as unfit", unfit(result));
    no_harm();
}

static void other_bytes(void)
{
    static unsigned char fatbin[4096] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
    static unsigned char elf[4096] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0};
    static const char words[4096] = "no image at all";
    int empty = load(fatbin), hollow = load(elf), said = load(words);
    conf_note("an empty fatbin: %d; an empty ELF file: %d; text: %d", empty, hollow, said);
    conf_true("all are refused as unfit", unfit(empty) && unfit(hollow) && unfit(said));
    no_harm();
}

const struct row conf_image_rows[] = {
    {"PTX of a newer version (case 106)", newer_ptx, 0},
    {"PTX that does not compile", bad_ptx, 0},
    {"PTX for a later device", other_architecture, 0},
    {"bytes that are no code", other_bytes, 0},
    {0},
};
