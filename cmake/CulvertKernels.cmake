# SPDX-License-Identifier: BSD-2-Clause
# culvert_add_kernels(<target> SOURCES <a.cu>... [INCLUDES <dirs>] [DEFINES <NAME[=value]>...]
#                     [NVCC_FLAGS <flags>] [HOST_FLAGS <flags>])
#
# Compiles each .cu source (see culvert/kernel.h for what it may hold) twice and embeds both in <target>, a program
# or a library that was made in the same directory, of C alone if it likes:
#
#   - with nvcc 12.0 or newer, where there is one, into a fatbin;
#   - with the host's C++ compiler into a module for the simulated driver.
#
# The program gets `const culvert_image culvert_image_<stem>`, declared by the header <stem>.culvert.h,
# which is on the target's include path. Without nvcc the image has no fatbin and serves the simulator only.
# Names in a source are its own: two sources, or a source and the program, may use the same ones (where the
# linker is not GNU ld 2.30 or newer, equal names are an error when linking).
#
# INCLUDES, DEFINES  for both compilers, as are the folders of the sources
# NVCC_FLAGS         for nvcc alone; the library's are -std=c++17 --fmad=false
# HOST_FLAGS         for the host's compiler alone; the library's are -std=c++17 -O3 -ffp-contract=off
#                    -fno-exceptions -fno-rtti, and -fsanitize from CMAKE_C_FLAGS and CMAKE_CXX_FLAGS
#
# Variables:
#
# CULVERT_KERNEL_ARCHITECTURES  "all-major" (the default): machine code for the first architecture of each
#                    major version that nvcc knows, which all GPUs of that version run, and PTX of the first
#                    and the last of them, for the others. Or a list: 80;90 gives machine code of these, and
#                    PTX of the first and the last.
# CULVERT_CUDA       OFF: no nvcc, also where there is one
# CULVERT_NVCC       the nvcc to use

# As a script: writes the image, once the size of the fatbin is known.
if(CMAKE_SCRIPT_MODE_FILE AND CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  file(SIZE "${FATBIN}" bytes)
  file(READ "${TEMPLATE}" text)
  string(REPLACE "CULVERT__FATBIN_BYTES" "${bytes}" text "${text}")
  file(WRITE "${OUTPUT}" "${text}")
  return()
endif()

cmake_policy(PUSH)
cmake_policy(VERSION 3.20...3.25)

set(CULVERT_KERNEL_ARCHITECTURES "all-major" CACHE STRING
    "GPU architectures of kernels: all-major, or a list as 80;90")
set(CULVERT_KERNELS_SCRIPT "${CMAKE_CURRENT_LIST_FILE}")

# The folder that has culvert/kernel.h: <prefix>/include above <prefix>/lib[/triplet]/cmake/Culvert, or
# that of the sources.
set(CULVERT_KERNELS_INCLUDE_DIR "")
set(culvert_folder "${CMAKE_CURRENT_LIST_DIR}")
foreach(culvert_up RANGE 5)
  if(EXISTS "${culvert_folder}/include/culvert/kernel.h")
    set(CULVERT_KERNELS_INCLUDE_DIR "${culvert_folder}/include")
    break()
  endif()
  cmake_path(GET culvert_folder PARENT_PATH culvert_folder)
endforeach()
if(NOT CULVERT_KERNELS_INCLUDE_DIR)
  message(FATAL_ERROR "culvert/kernel.h is in no include folder above ${CMAKE_CURRENT_LIST_DIR}")
endif()

# CULVERT_HAVE_NVCC and CULVERT_NVCC, unless the including project has looked for them.
function(culvert__find_nvcc)
  if(DEFINED CULVERT_HAVE_NVCC)
    return()
  endif()
  set(have OFF)
  if(NOT DEFINED CULVERT_CUDA OR CULVERT_CUDA OR "${CULVERT_CUDA}" STREQUAL "AUTO")
    find_program(CULVERT_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(CULVERT_NVCC)
      execute_process(COMMAND "${CULVERT_NVCC}" --version OUTPUT_VARIABLE says ERROR_QUIET)
      if(says MATCHES "release ([0-9]+\\.[0-9]+)" AND CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.0)
        set(have ON)
      endif()
    endif()
  endif()
  set(CULVERT_HAVE_NVCC ${have} PARENT_SCOPE)
endfunction()

# -gencode flags for what CULVERT_KERNEL_ARCHITECTURES asks for.
function(culvert__gencode out)
  set(archs "${CULVERT_KERNEL_ARCHITECTURES}")
  if(archs STREQUAL "all-major")
    execute_process(COMMAND "${CULVERT_NVCC}" --list-gpu-code OUTPUT_VARIABLE codes
                    RESULT_VARIABLE result ERROR_VARIABLE error)
    string(REGEX MATCHALL "sm_[0-9]+[a-z]*" codes "${codes}")
    list(FILTER codes EXCLUDE REGEX "[a-z]$") # sm_90a and such run on nothing else
    list(TRANSFORM codes REPLACE "^sm_" "")
    list(SORT codes COMPARE NATURAL)
    if(result OR NOT codes)
      message(FATAL_ERROR "${CULVERT_NVCC} --list-gpu-code: ${error}")
    endif()
    set(archs "")
    set(majors "")
    foreach(code IN LISTS codes)
      math(EXPR major "${code} / 10")
      if(NOT major IN_LIST majors)
        list(APPEND majors ${major})
        list(APPEND archs ${code})
      endif()
    endforeach()
  endif()
  set(flags "")
  foreach(arch IN LISTS archs)
    list(APPEND flags "-gencode=arch=compute_${arch},code=sm_${arch}")
  endforeach()
  list(GET archs 0 first)
  list(GET archs -1 last)
  set(ptx ${first} ${last})
  list(REMOVE_DUPLICATES ptx)
  foreach(arch IN LISTS ptx)
    list(APPEND flags "-gencode=arch=compute_${arch},code=compute_${arch}")
  endforeach()
  set(${out} "${flags}" PARENT_SCOPE)
endfunction()

# The C++ compiler that goes with the project's, which need not have C++ enabled.
function(culvert__find_cxx)
  if(CMAKE_CXX_COMPILER)
    set(CULVERT_KERNELS_CXX "${CMAKE_CXX_COMPILER}" PARENT_SCOPE)
    return()
  endif()
  cmake_path(GET CMAKE_C_COMPILER PARENT_PATH folder)
  cmake_path(GET CMAKE_C_COMPILER FILENAME name)
  string(REGEX REPLACE "gcc" "g++" sibling "${name}")
  string(REGEX REPLACE "clang" "clang++" sibling "${sibling}")
  if(sibling STREQUAL name)
    set(sibling c++)
  endif()
  find_program(CULVERT_KERNELS_CXX NAMES "${sibling}" c++ HINTS "${folder}"
               DOC "C++ compiler for kernels that run on the simulated driver")
  if(NOT CULVERT_KERNELS_CXX)
    message(FATAL_ERROR "culvert_add_kernels: no C++ compiler beside ${CMAKE_C_COMPILER}; set CULVERT_KERNELS_CXX")
  endif()
endfunction()

# Flags of the host's compiler that are the same for all sources.
function(culvert__host_flags out)
  set(flags -std=c++17 -O3 -fPIC -fvisibility=hidden -ffp-contract=off -fno-exceptions -fno-rtti
            -fno-threadsafe-statics -fno-lto)
  set(language CXX)
  if(NOT CMAKE_CXX_COMPILER)
    set(language C)
  endif()
  if(CMAKE_${language}_COMPILER_TARGET)
    list(APPEND flags "--target=${CMAKE_${language}_COMPILER_TARGET}")
  endif()
  if(CMAKE_SYSROOT)
    list(APPEND flags "--sysroot=${CMAKE_SYSROOT}")
  endif()
  string(REGEX MATCHALL "-f(no-)?sanitize[^ ]*" sanitize "${CMAKE_C_FLAGS} ${CMAKE_CXX_FLAGS}")
  list(APPEND sanitize ${culvert_sanitize}) # the library's own build: cmake/CulvertOptions.cmake
  if(sanitize)
    list(APPEND flags ${sanitize} -fno-omit-frame-pointer -fno-sanitize=vptr)
    if(CMAKE_${language}_COMPILER_ID MATCHES "Clang")
      list(APPEND flags -fno-sanitize=function) # needs type information of the C++ library
    endif()
  endif()
  set(${out} "${flags}" PARENT_SCOPE)
endfunction()

# Whether what is global in a module's object can be made local: CULVERT_KERNELS_LD, which dissolves section
# groups (GNU ld 2.30; CMAKE_LINKER may be another one), and an objcopy.
function(culvert__find_localizer out)
  if(NOT DEFINED CULVERT_KERNELS_LD)
    set(found "")
    set(candidates "${CMAKE_LINKER}")
    if(NOT CMAKE_CROSSCOMPILING)
      list(APPEND candidates ld.bfd ld)
    endif()
    foreach(candidate IN LISTS candidates)
      execute_process(COMMAND "${candidate}" --help OUTPUT_VARIABLE help ERROR_QUIET RESULT_VARIABLE result)
      if(result EQUAL 0 AND help MATCHES "--force-group-allocation" AND CMAKE_OBJCOPY)
        set(found "${candidate}")
        break()
      endif()
    endforeach()
    set(CULVERT_KERNELS_LD "${found}" CACHE STRING "Linker that makes names in kernel sources local")
    mark_as_advanced(CULVERT_KERNELS_LD)
  endif()
  if(CULVERT_KERNELS_LD)
    set(${out} ON PARENT_SCOPE)
  else()
    set(${out} OFF PARENT_SCOPE)
  endif()
endfunction()

# <stem>.module.o: the source built for the host.
function(culvert__add_module source stem id folder)
  set(wrapper "${folder}/${stem}.module.cpp")
  set(object "${folder}/${stem}.module.o")
  file(CONFIGURE OUTPUT "${wrapper}" @ONLY CONTENT
"// Made by culvert_add_kernels().
#include \"@source@\"

CULVERT__MODULE(@id@, \"@stem@\");
")
  culvert__find_localizer(localize)
  if(localize)
    set(compiled "${folder}/${stem}.module.all.o")
    set(then
      COMMAND "${CULVERT_KERNELS_LD}" -r --force-group-allocation -o "${object}" "${compiled}"
      COMMAND "${CMAKE_OBJCOPY}" --keep-global-symbol=culvert__sim_module_${id} "${object}")
  else()
    set(compiled "${object}")
    set(then "")
  endif()
  add_custom_command(
    OUTPUT "${object}"
    COMMAND "${CULVERT_KERNELS_CXX}" ${host_flags} "$<$<NOT:$<CONFIG:Release,MinSizeRel>>:-g>" ${common_flags}
            ${ARG_HOST_FLAGS} -MD -MT "${object}" -MF "${object}.d" -c "${wrapper}" -o "${compiled}"
    ${then}
    DEPENDS "${source}" "${wrapper}"
    DEPFILE "${object}.d"
    COMMENT "Compiling ${stem}.cu for the simulator"
    COMMAND_EXPAND_LISTS VERBATIM)
endfunction()

# <stem>.fatbin, and <stem>.fatbin.o that has its bytes.
function(culvert__add_fatbin source stem id folder)
  set(fatbin "${folder}/${stem}.fatbin")
  set(object "${folder}/${stem}.fatbin.o")
  set(assembly "${folder}/${stem}.fatbin.S")
  set(ccbin "")
  if(CMAKE_CUDA_HOST_COMPILER)
    set(ccbin "-ccbin=${CMAKE_CUDA_HOST_COMPILER}")
  endif()
  add_custom_command(
    OUTPUT "${fatbin}"
    COMMAND "${CULVERT_NVCC}" -fatbin -std=c++17 --fmad=false ${gencode} ${ccbin} -Wno-deprecated-gpu-targets
            "$<$<NOT:$<CONFIG:Release,MinSizeRel>>:-lineinfo>" ${common_flags} ${ARG_NVCC_FLAGS}
            -MD -MT "${fatbin}" -MF "${fatbin}.d" "${source}" -o "${fatbin}"
    DEPENDS "${source}"
    DEPFILE "${fatbin}.d"
    COMMENT "Compiling ${stem}.cu for the GPU"
    COMMAND_EXPAND_LISTS VERBATIM)
  file(CONFIGURE OUTPUT "${assembly}" @ONLY CONTENT
"/* Made by culvert_add_kernels(). */
    .section .rodata, \"a\", %progbits
    .balign 16
    .globl culvert__fatbin_@id@
    .hidden culvert__fatbin_@id@
    .type culvert__fatbin_@id@, %object
culvert__fatbin_@id@:
    .incbin \"@fatbin@\"
    .size culvert__fatbin_@id@, . - culvert__fatbin_@id@
    .section .note.GNU-stack, \"\", %progbits
")
  set(compiler "${CMAKE_C_COMPILER}")
  if(NOT compiler)
    set(compiler "${CMAKE_CXX_COMPILER}")
  endif()
  set(target "")
  if(CMAKE_C_COMPILER_TARGET)
    set(target "--target=${CMAKE_C_COMPILER_TARGET}")
  endif()
  add_custom_command(
    OUTPUT "${object}"
    COMMAND "${compiler}" ${target} -c "${assembly}" -o "${object}"
    DEPENDS "${fatbin}" "${assembly}"
    VERBATIM)
endfunction()

# <stem>.image.c, which defines culvert_image_<id>, and <stem>.culvert.h.
function(culvert__add_image stem id folder suffix)
  set(header "${folder}/${stem}.culvert.h")
  set(image "${folder}/${stem}.image.${suffix}")
  string(TOUPPER "CULVERT_IMAGE_${id}_H" guard)
  file(CONFIGURE OUTPUT "${header}" @ONLY CONTENT
"/* Made by culvert_add_kernels(): the kernels of @stem@.cu. */
#ifndef @guard@
#define @guard@

#include <culvert/gpu.h>

#ifdef __cplusplus
extern \"C\" {
#endif

extern const culvert_image culvert_image_@id@;

#ifdef __cplusplus
}
#endif

#endif
")
  set(declaration "")
  set(fatbin NULL)
  set(template "${image}")
  set(bytes 0)
  if(CULVERT_HAVE_NVCC)
    set(declaration "extern const unsigned char culvert__fatbin_${id}[];\n")
    set(fatbin culvert__fatbin_${id})
    set(template "${image}.in")
    set(bytes "CULVERT__FATBIN_BYTES")
  endif()
  file(CONFIGURE OUTPUT "${template}" @ONLY CONTENT
"/* Made by culvert_add_kernels(). */
#include \"@stem@.culvert.h\"

#include <culvert/sim_module.h>

#ifdef __cplusplus
extern \"C\" {
#endif
@declaration@extern const struct culvert_sim_module culvert__sim_module_@id@;
#ifdef __cplusplus
}
#endif

const culvert_image culvert_image_@id@ = {sizeof(culvert_image), \"@stem@\", @fatbin@, @bytes@,
                                          &culvert__sim_module_@id@};
")
  if(CULVERT_HAVE_NVCC)
    add_custom_command(
      OUTPUT "${image}"
      COMMAND "${CMAKE_COMMAND}" "-DFATBIN=${folder}/${stem}.fatbin" "-DTEMPLATE=${template}" "-DOUTPUT=${image}"
              -P "${CULVERT_KERNELS_SCRIPT}"
      DEPENDS "${folder}/${stem}.fatbin" "${template}" "${CULVERT_KERNELS_SCRIPT}"
      VERBATIM)
  endif()
  set_source_files_properties("${image}" PROPERTIES
    INCLUDE_DIRECTORIES "${folder};${CULVERT_KERNELS_INCLUDE_DIR}")
endfunction()

# What is wrong with the arguments of culvert_add_kernels (ARG_...), before anything is looked for.
function(culvert__check_arguments target)
  set(call "culvert_add_kernels(${target})")
  set(example "culvert_add_kernels(${target} SOURCES kernels.cu)")
  if(target MATCHES "^(SOURCES|INCLUDES|DEFINES|NVCC_FLAGS|HOST_FLAGS)$" AND NOT TARGET ${target})
    message(FATAL_ERROR "culvert_add_kernels: the target is missing, which comes before ${target}, as in "
                        "culvert_add_kernels(program SOURCES kernels.cu)")
  endif()
  if(ARG_UNPARSED_ARGUMENTS)
    list(JOIN ARG_UNPARSED_ARGUMENTS " " what)
    message(FATAL_ERROR "${call}: ${what}: behind none of the keywords SOURCES, INCLUDES, DEFINES, NVCC_FLAGS and "
                        "HOST_FLAGS; write ${example}")
  endif()
  if(NOT ARG_SOURCES)
    message(FATAL_ERROR "${call}: no SOURCES; write ${example}")
  endif()
  culvert__check_target(${target} "${call}")
  foreach(source IN LISTS ARG_SOURCES)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE file)
    if(NOT EXISTS "${file}" OR IS_DIRECTORY "${file}")
      message(FATAL_ERROR "${call}: no file ${source} in ${CMAKE_CURRENT_SOURCE_DIR} (it has to be there when CMake "
                          "is run)")
    endif()
  endforeach()
  if(NOT CMAKE_C_COMPILER AND NOT CMAKE_CXX_COMPILER)
    message(FATAL_ERROR "${call}: neither C nor CXX is enabled: project(... LANGUAGES C)")
  endif()
endfunction()

function(culvert__check_target target call)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "${call}: there is no target ${target}; call it behind add_executable(${target} ...) or "
                        "add_library(${target} ...)")
  endif()
  get_target_property(alias ${target} ALIASED_TARGET)
  if(alias)
    message(FATAL_ERROR "${call}: ${target} is an alias; name ${alias}")
  endif()
  get_target_property(type ${target} TYPE)
  get_target_property(imported ${target} IMPORTED)
  if(imported)
    set(type "imported ${type}")
  endif()
  if(NOT type MATCHES "^(EXECUTABLE|STATIC_LIBRARY|SHARED_LIBRARY|MODULE_LIBRARY)$")
    message(FATAL_ERROR "${call}: the target is an ${type}, which cannot hold objects made elsewhere; use a static "
                        "library")
  endif()
  get_target_property(target_dir ${target} BINARY_DIR)
  if(NOT target_dir STREQUAL CMAKE_CURRENT_BINARY_DIR)
    get_target_property(target_source_dir ${target} SOURCE_DIR)
    message(FATAL_ERROR "${call}: call it in the directory that made the target, ${target_source_dir}")
  endif()
endfunction()

function(culvert_add_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;INCLUDES;DEFINES;NVCC_FLAGS;HOST_FLAGS")
  culvert__check_arguments("${target}")
  get_target_property(type ${target} TYPE)
  culvert__find_nvcc()
  culvert__find_cxx()
  culvert__host_flags(host_flags)
  if(CULVERT_HAVE_NVCC)
    culvert__gencode(gencode)
  endif()

  set(common_flags "-I${CULVERT_KERNELS_INCLUDE_DIR}")
  foreach(dir IN LISTS ARG_INCLUDES)
    if(NOT dir MATCHES "^\\$<")
      cmake_path(ABSOLUTE_PATH dir BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    endif()
    list(APPEND common_flags "-I${dir}")
  endforeach()
  foreach(define IN LISTS ARG_DEFINES)
    list(APPEND common_flags "-D${define}")
  endforeach()

  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(suffix c)
  if(NOT C IN_LIST languages)
    set(suffix cpp)
  endif()

  set(folder "${CMAKE_CURRENT_BINARY_DIR}/culvert_kernels/${target}")
  get_target_property(stems ${target} CULVERT_KERNEL_STEMS)
  if(NOT stems)
    set(stems "")
  endif()
  foreach(source IN LISTS ARG_SOURCES)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    cmake_path(GET source STEM stem)
    string(MAKE_C_IDENTIFIER "${stem}" id)
    if(id IN_LIST stems)
      message(FATAL_ERROR "culvert_add_kernels(${target}): two sources named ${stem}")
    endif()
    list(APPEND stems ${id})
    culvert__add_module("${source}" ${stem} ${id} "${folder}")
    culvert__add_image(${stem} ${id} "${folder}" ${suffix})
    target_sources(${target} PRIVATE "${folder}/${stem}.module.o" "${folder}/${stem}.image.${suffix}")
    if(CULVERT_HAVE_NVCC)
      culvert__add_fatbin("${source}" ${stem} ${id} "${folder}")
      target_sources(${target} PRIVATE "${folder}/${stem}.fatbin.o")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES CULVERT_KERNEL_STEMS "${stems}")
  target_include_directories(${target} PRIVATE "${folder}")

  # Kernels use the C library's mathematics. (Not target_link_libraries, whose two forms do not mix.)
  set_property(TARGET ${target} APPEND PROPERTY LINK_LIBRARIES m)
  if(type STREQUAL "STATIC_LIBRARY")
    set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES "$<LINK_ONLY:m>")
  endif()
endfunction()

cmake_policy(POP)
