/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Images: what is looked at before the driver gets one, and what can be said of one that the driver
 * refused.
 *
 * A driver that is given a part of an image reads behind its end, so the sizes that an image states are
 * compared with the bytes that are there. What it holds is read for messages only: the layout of a
 * fatbin is nobody's promise, so nothing depends on it, and what does not look right is not told.
 */
#include "gpu/gpu_internal.h"

#include "culvert/sim_module.h"

#include <stdio.h>
#include <string.h>

const char *culvert__image_name(const culvert_image *image)
{
    return image->name != NULL ? image->name : "without a name";
}

const struct culvert_sim_module *culvert__image_twin(const culvert_image *image)
{
    static const unsigned char magic[] = CULVERT_SIM_MODULE_MAGIC;
    const unsigned char *bytes = image->sim_module;
    if (bytes == NULL)
        return NULL;
    for (size_t i = 0; i < sizeof magic; i++)
        if (bytes[i] != magic[i])
            return NULL;
    const struct culvert_sim_module *twin = image->sim_module;
    return twin->abi == CULVERT_SIM_MODULE_ABI ? twin : NULL;
}

/* ---- reading ---- */

enum { FATBIN_MAGIC_0 = 0x50, FATBIN_MAGIC_1 = 0xed, ENTRY_PTX = 1, ENTRY_ELF = 2 };

typedef struct fatbin {
    const unsigned char *bytes;
    size_t size;
} fatbin;

static uint64_t number(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | at[bytes];
    return value;
}

static bool is_fatbin(const unsigned char *bytes, size_t size)
{
    return size >= 16 && bytes[0] == FATBIN_MAGIC_0 && bytes[1] == FATBIN_MAGIC_1 &&
           bytes[2] == 0x55 && bytes[3] == 0xba;
}

/* As its header says; may be more than there is. */
static uint64_t fatbin_size(const unsigned char *bytes)
{
    return number(bytes + 6, 2) + number(bytes + 8, 8);
}

static bool is_elf(const unsigned char *bytes, size_t size)
{
    return size >= 4 && memcmp(bytes, "\177ELF", 4) == 0;
}

/* ---- telling ---- */

typedef struct text {
    char *out;
    size_t size, used;
} text;

static void say(text *t, const char *format, unsigned a, unsigned b)
{
    char part[64];
    int n = snprintf(part, sizeof part, format, a, b);
    if (n < 0 || (size_t)n >= t->size - t->used)
        return;
    memcpy(t->out + t->used, part, (size_t)n + 1);
    t->used += (size_t)n;
}

/* "machine code for 7.5 9.0, PTX 9.0 for 9.0" */
static void say_entries(text *t, fatbin f)
{
    static const unsigned kinds[] = {ENTRY_ELF, ENTRY_PTX};
    for (size_t k = 0; k < 2; k++) {
        bool first = true;
        for (size_t at = number(f.bytes + 6, 2); at + 64 <= f.size;) {
            const unsigned char *entry = f.bytes + at;
            uint64_t header = number(entry + 4, 4), bytes = number(entry + 8, 8);
            unsigned arch = (unsigned)number(entry + 28, 4);
            if (header < 32 || header > f.size || bytes > f.size || arch > 999)
                return;
            if (number(entry, 2) == kinds[k] && kinds[k] == ENTRY_ELF)
                say(t, first ? "machine code for %u.%u" : " %u.%u", arch / 10, arch % 10);
            if (number(entry, 2) == kinds[k] && kinds[k] == ENTRY_PTX) {
                say(t, t->used > 0 ? ", PTX %u.%u" : "PTX %u.%u", (unsigned)number(entry + 26, 2),
                    (unsigned)number(entry + 24, 2));
                say(t, " for %u.%u", arch / 10, arch % 10);
            }
            first = first && number(entry, 2) != kinds[k];
            at += header + bytes;
        }
    }
}

static void say_ptx(text *t, const char *ptx)
{
    unsigned major, minor, arch;
    const char *version = strstr(ptx, ".version"), *target = strstr(ptx, ".target");
    if (version == NULL || sscanf(version, ".version %u.%u", &major, &minor) != 2)
        return;
    say(t, "PTX %u.%u", major, minor);
    if (target != NULL && sscanf(target, ".target sm_%u", &arch) == 1)
        say(t, " for %u.%u", arch / 10, arch % 10);
}

void culvert__image_contents(const culvert_image *image, char *out, size_t size)
{
    text t = {out, size, 0};
    const unsigned char *bytes = image->fatbin;
    size_t n = image->fatbin_bytes;
    out[0] = '\0';
    if (bytes == NULL || n == 0)
        return;
    if (is_fatbin(bytes, n))
        say_entries(&t, (fatbin){bytes, n});
    else if (!is_elf(bytes, n) && memchr(bytes, 0, n) != NULL)
        say_ptx(&t, image->fatbin);
}

/* ---- before the driver gets it ---- */

#define REFUSE(code, ...) culvert__error_set(err, code, 0, op, where, __VA_ARGS__)

static bool check_code(const culvert_image *image, const char *op, const char *where,
                       culvert_error *err)
{
    const char *name = culvert__image_name(image);
    const unsigned char *bytes = image->fatbin;
    size_t n = image->fatbin_bytes;
    if (n == 0) {
        REFUSE(CULVERT_EINVAL, "image %s: fatbin_bytes is 0 where fatbin is not NULL", name);
        return false;
    }
    if (is_fatbin(bytes, n) && fatbin_size(bytes) > n) {
        REFUSE(CULVERT_EINVAL,
               "image %s is cut off: it has %zu bytes, and its header says that there are %llu",
               name, n, (unsigned long long)fatbin_size(bytes));
        return false;
    }
    if (!is_fatbin(bytes, n) && !is_elf(bytes, n) && memchr(bytes, 0, n) == NULL) {
        REFUSE(CULVERT_EINVAL,
               "image %s is neither a fatbin nor a cubin, and there is no zero byte at its end as "
               "PTX has",
               name);
        return false;
    }
    return true;
}

bool culvert__image_check(const culvert_image *image, bool simulated, const char *op,
                          const char *where, culvert_error *err)
{
    if (image->struct_size != sizeof *image) {
        REFUSE(CULVERT_EINVAL,
               "image->struct_size is %zu where sizeof(culvert_image) is %zu: not an image, or of "
               "another version",
               image->struct_size, sizeof *image);
        return false;
    }
    const char *name = culvert__image_name(image);
    if (simulated && image->sim_module == NULL) {
        REFUSE(CULVERT_ENOTSUP,
               "image %s has no code for the simulator: build it with culvert_add_kernels, which "
               "compiles for the host too",
               name);
        return false;
    }
    if (!simulated && image->fatbin == NULL) {
        REFUSE(
            CULVERT_ENOTSUP,
            "image %s has no code for a real device: it was built without nvcc. Install the CUDA "
            "Toolkit (12.0 or newer) and build with -DCULVERT_CUDA=ON",
            name);
        return false;
    }
    return simulated || check_code(image, op, where, err);
}
