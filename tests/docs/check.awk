# SPDX-License-Identifier: BSD-2-Clause
# Checks documents in Markdown: `awk -f check.awk -v root=FOLDER DOCUMENT...`, names relative to the folder.
#
#   - A block of c, cuda or cmake follows a comment that names where it stands, <!-- FILE --> or
#     <!-- FILE: REGION -->, and is that text, but for a common indentation. A region begins with a line
#     "region: REGION" and ends with "end region", each in a comment of the file's language.
#   - Each region of the files named in `snippets` is in some document.
#   - Relative links lead to files, and their #fragments to headings.
#
# Says what is wrong, one line each, and then exits with 1.

function wrong(text) {
    printf "%s\n", text
    failed = 1
}

function place() {
    return document ":" number ": "
}

# The number of spaces that all lines of lines[1..n] begin with; empty lines do not count.
function indentation(lines, n,    i, least, this) {
    least = -1
    for (i = 1; i <= n; i++) {
        if (lines[i] ~ /^ *$/)
            continue
        match(lines[i], /^ */)
        this = RLENGTH
        if (least < 0 || this < least)
            least = this
    }
    return least < 0 ? 0 : least
}

function dedent(lines, n,    i, by) {
    by = indentation(lines, n)
    for (i = 1; i <= n; i++)
        lines[i] = lines[i] ~ /^ *$/ ? "" : substr(lines[i], by + 1)
}

# name(): the function of that name, from the line of its name to the brace that ends it.
function is_function(name) {
    return name ~ /\(\)$/
}

function is_definition(line, name) {
    return line ~ /^[a-z]/ && line !~ /;$/ && index(line, substr(name, 1, length(name) - 1)) > 0
}

function is_begin(line, name) {
    return line ~ ("^ *(/\\*|#) region: " name "( \\*/)?$")
}

function is_end(line) {
    return line ~ /^ *(\/\*|#) end region( \*\/)?$/
}

# Reads a file, or a region of it, into text[1..]; how many lines, -1: there is no such thing.
function load(file, region, text,    line, n, on, status) {
    n = 0
    on = region == ""
    while ((status = (getline line < (root "/" file))) > 0) {
        if (region != "" && !on && !is_function(region) && is_begin(line, region)) {
            on = 1
            continue
        }
        if (is_function(region) && !on && is_definition(line, region))
            on = 1
        if (on && is_function(region) && line == "}") {
            text[++n] = line
            close(root "/" file)
            return n
        }
        if (region != "" && on && is_end(line)) {
            close(root "/" file)
            return n
        }
        if (on)
            text[++n] = line
    }
    close(root "/" file)
    return status < 0 || region != "" ? -1 : n
}

function check_block(    i, n, file, region, text) {
    if (marker == "") {
        wrong(document ":" begun ": no comment says where this block stands")
        return
    }
    file = region = marker
    if (index(marker, ": ") > 0) {
        sub(/: .*/, "", file)
        sub(/^[^:]*: /, "", region)
    } else {
        region = ""
    }
    n = load(file, region, text)
    if (n < 0) {
        wrong(document ":" begun ": there is no " marker)
        return
    }
    used[file, region] = 1
    dedent(text, n)
    dedent(block, lines)
    for (i = 1; i <= n || i <= lines; i++)
        if (i > n || i > lines || text[i] != block[i]) {
            wrong(document ":" (begun + i) ": differs from " marker ", which has: " \
                  (i > n ? "nothing more" : text[i]))
            return
        }
}

function slug(heading,    s) {
    s = tolower(heading)
    sub(/^#+ +/, "", s)
    gsub(/[^a-z0-9 _-]/, "", s)
    gsub(/ /, "-", s)
    return s
}

function has_heading(file, fragment,    line, found, fence) {
    found = fence = 0
    while ((getline line < (root "/" file)) > 0) {
        if (line ~ /^ *```/)
            fence = !fence
        if (!fence && line ~ /^#+ / && slug(line) == fragment)
            found = 1
    }
    close(root "/" file)
    return found
}

# a/b/../c -> a/c
function normal(path,    parts, n, i, m, kept, out) {
    n = split(path, parts, "/")
    m = 0
    for (i = 1; i <= n; i++) {
        if (parts[i] == "." || parts[i] == "")
            continue
        if (parts[i] == ".." && m > 0 && kept[m] != "..")
            m--
        else
            kept[++m] = parts[i]
    }
    out = m > 0 ? kept[1] : ""
    for (i = 2; i <= m; i++)
        out = out "/" kept[i]
    return out
}

function check_link(target,    file, fragment, folder) {
    if (target ~ /^[a-z]+:/)
        return
    fragment = file = target
    if (index(target, "#") > 0) {
        sub(/#.*/, "", file)
        sub(/^[^#]*#/, "", fragment)
    } else {
        fragment = ""
    }
    folder = document
    if (!sub(/\/[^\/]*$/, "", folder))
        folder = "."
    file = file == "" ? document : normal(folder "/" file)
    if (file ~ /[^A-Za-z0-9_.\/-]/ || system("test -e '" root "/" file "'") != 0)
        wrong(place() "no file " file ", to which a link leads")
    else if (fragment != "" && !has_heading(file, fragment))
        wrong(place() "no heading #" fragment " in " file)
}

function check_links(line) {
    gsub(/`[^`]*`/, "", line)
    while (match(line, /\]\([^) ]*\)/)) {
        check_link(substr(line, RSTART + 2, RLENGTH - 3))
        line = substr(line, RSTART + RLENGTH)
    }
    if (match(line, /^\[[^]]*\]: +[^ ]+/)) {
        sub(/^\[[^]]*\]: +/, "", line)
        sub(/ .*/, "", line)
        check_link(line)
    }
}

function check_line(line) {
    if (line ~ /^ *```/) {
        if (fence && language ~ /^(c|cuda|cmake)$/)
            check_block()
        if (fence) {
            marker = ""
        } else {
            language = line
            sub(/^ *```/, "", language)
            begun = number
            lines = 0
        }
        fence = !fence
        return
    }
    if (fence) {
        block[++lines] = line
        return
    }
    check_links(line)
    if (line ~ /^<!-- [^ ]+(: [^>]+)? -->$/) {
        marker = line
        sub(/^<!-- /, "", marker)
        sub(/ -->$/, "", marker)
    } else if (line !~ /^ *$/) {
        marker = ""
    }
}

function check_document(    text, n) {
    fence = 0
    marker = ""
    n = load(document, "", text) # all of it first: links to the document itself read it again
    if (n < 0)
        wrong("no document " document)
    for (number = 1; number <= n; number++)
        check_line(text[number])
    if (fence)
        wrong(document ":" begun ": this block has no end")
}

# Regions that no document has, and regions without an end.
function check_regions(file,    line, name, inside) {
    inside = ""
    while ((getline line < (root "/" file)) > 0) {
        if (line ~ /^ *(\/\*|#) region: /) {
            name = line
            sub(/^ *(\/\*|#) region: /, "", name)
            sub(/ \*\/$/, "", name)
            if (inside != "")
                wrong(file ": region " inside " has no end")
            if (!((file, name) in used))
                wrong(file ": no document has region " name)
            inside = name
        } else if (is_end(line)) {
            inside = ""
        }
    }
    close(root "/" file)
    if (inside != "")
        wrong(file ": region " inside " has no end")
}

BEGIN {
    for (d = 1; d < ARGC; d++) {
        document = ARGV[d]
        check_document()
    }
    count = split(snippets, names, " ")
    for (d = 1; d <= count; d++)
        check_regions(names[d])
    exit failed
}
