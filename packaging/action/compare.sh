#!/bin/bash
# The step of the composite action: compares, writes the summary and the files, and ends with mgz's status.
#
# MGZ_BASE, MGZ_NEW: traces, separated by spaces. MGZ_FAIL_IF, MGZ_MISSES, MGZ_OUTPUT, MGZ: see action.yml.
set -uo pipefail
output=${MGZ_OUTPUT:-mgz-comparison}
mkdir -p "$output" || exit 1
read -ra base <<<"${MGZ_BASE:?}"
read -ra new <<<"${MGZ_NEW:?}"
options=(--format markdown --also "json=$output/comparison.json" --also "junit=$output/junit.xml"
    --also "customSmallerIsBetter=$output/benchmark.json")
[ -z "${MGZ_FAIL_IF:-}" ] || options+=(--fail-if "$MGZ_FAIL_IF")
[ "${MGZ_MISSES:-false}" != true ] || options+=(--misses)
summary=$("${MGZ:-mgz}" compare "${options[@]}" "${base[@]}" -- "${new[@]}")
status=$?
printf '%s\n' "$summary"
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || printf '%s\n' "$summary" >>"$GITHUB_STEP_SUMMARY"
if [ -n "${GITHUB_OUTPUT:-}" ]; then
    worse=false
    [ $status != 3 ] || worse=true
    {
        printf 'worse=%s\n' "$worse"
        printf 'verdict<<mgz-end-of-verdict\n%s\nmgz-end-of-verdict\n' "$(sed -n '3,/^$/p' <<<"$summary")"
    } >>"$GITHUB_OUTPUT"
fi
exit $status
