{{/*
What is wrong with names that have a form of their own, as a JSON list of sentences: each with the value, what is allowed
and what may have been meant.
*/}}
{{- define "topodisk.wrongNames" -}}
{{- $wrong := list -}}
{{- if hasKey .Values "replicaCount" -}}
{{- $wrong = append $wrong (printf "replicaCount is %d, which is no value of its own; did you mean controller.replicaCount=%d?" (int .Values.replicaCount) (int .Values.replicaCount)) -}}
{{- end -}}
{{- with regexFind "^.*(-|[0-9])[a-z]$" .Values.region -}}
{{- $wrong = append $wrong (printf "region is %s, which is a zone: a region such as cn-hangzhou or ap-southeast-1 is allowed; did you mean %s?" . (trunc (sub (len .) 1 | int) . | trimSuffix "-")) -}}
{{- end -}}
{{- with .Values.clusterID -}}
{{- $ack := "the ID of an ACK cluster is c and 32 of 0-9 and a-f, any other has letters, digits, dots and dashes" -}}
{{- $lower := lower . | replace "_" "" -}}
{{- if contains "_" . -}}
{{- $wrong = append $wrong (printf "clusterID is %s, which has an underscore: %s; did you mean %s?" . $ack (ternary $lower (replace "_" "-" .) (regexMatch "^c[0-9a-f]+$" $lower))) -}}
{{- else if and (regexMatch "^c[0-9a-f]{20,}$" $lower) (not (regexMatch "^c[0-9a-f]{32}$" .)) -}}
{{- $wrong = append $wrong (printf "clusterID is %s, which has %d characters: %s%s" . (len .) $ack (ternary (printf "; did you mean %s?" $lower) "" (eq (len .) 33))) -}}
{{- end -}}
{{- end -}}
{{- $repository := .Values.image.repository -}}
{{- $name := splitList "/" $repository | last | default "" -}}
{{- if contains "@" $repository -}}
{{- $parts := splitn "@" 2 $repository -}}
{{- $wrong = append $wrong (printf "image.repository is %s, with a digest in it: registry and name alone are allowed; did you mean image.repository=%s and image.digest=%s?" $repository $parts._0 $parts._1) -}}
{{- else if contains ":" $name -}}
{{- $tag := splitList ":" $name | last -}}
{{- $wrong = append $wrong (printf "image.repository is %s, with a tag in it: registry and name alone are allowed; did you mean image.repository=%s and image.tag=%s?" $repository (trimSuffix (printf ":%s" $tag) $repository) $tag) -}}
{{- else if not (regexMatch "^$|^[a-z0-9]+([._:/-]+[a-z0-9]+)*$" $repository) -}}
{{- $wrong = append $wrong (printf "image.repository is %s: letters are small, and each part begins and ends with a letter or digit%s" $repository (ternary (printf "; did you mean %s?" (lower $repository)) "" (regexMatch "^[a-z0-9]+([._:/-]+[a-z0-9]+)*$" (lower $repository)))) -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end -}}

{{/* What is wrong with the parameters of the classes, by the tables of disk-driver, as a JSON list of sentences. */}}
{{- define "topodisk.wrongClasses" -}}
{{- $wrong := list -}}
{{- range .Files.Get "files/parameters.json" | fromJsonArray -}}
{{- $known := . -}}
{{- $lenient := and (eq $.Values.diskDriver.unknownParameters "warn") (ne .values "volumeAttributesClasses") -}}
{{- range get $.Values .values -}}
{{- $class := printf "%s %s" $known.values .name -}}
{{- range $name, $value := .parameters -}}
{{- $is := printf "%s: parameter %s (value %q)" $class $name $value -}}
{{- if hasKey $known.refused $name -}}
{{- if $value -}}{{- $wrong = append $wrong (printf "%s is not supported: %s" $is (get $known.refused $name)) -}}{{- end -}}
{{- else if hasKey $known.choices $name -}}
{{- $choice := get $known.choices $name -}}
{{- $words := ternary (splitList "," $value) (list $value) (dig "list" false $choice) -}}
{{- range ternary (list) $words (has $value (list "" (dig "alone" "" $choice))) -}}
{{- $word := ternary (trim .) . (dig "list" false $choice) -}}
{{- if not (has (ternary (lower $word) $word (dig "anyCase" false $choice)) $choice.words) -}}
{{- $wrong = append $wrong (printf "%s: %q is not allowed; allowed are %s%s" $is $word (join ", " $choice.words) (include "topodisk.didYouMean" (list $word $choice.words))) -}}
{{- end -}}
{{- end -}}
{{- else if not (or $lenient (has $name $known.names) (has $name (default list $known.others)) (regexMatch $known.matching $name)) -}}
{{- $under := false -}}
{{- range $known.prefixes -}}{{- if and (hasPrefix . $name) (ne . $name) -}}{{- $under = true -}}{{- end -}}{{- end -}}
{{- if not $under -}}
{{- $wrong = append $wrong (printf "%s is unknown; allowed are %s%s" $is (join ", " (concat $known.names $known.prefixes | sortAlpha)) (include "topodisk.didYouMean" (list $name $known.names))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end -}}

{{/*
The end of a sentence about a word that is not allowed, of (list word allowed-words): what may have been meant, or nothing.
Near are words that differ by case alone; else by a letter more, less or other, or two exchanged; else the longest that is
part of the word, or the shortest that the word is part of.
*/}}
{{- define "topodisk.didYouMean" -}}
{{- $word := index . 0 | lower -}}
{{- $shortened := include "topodisk.shortened" $word | fromJsonArray -}}
{{- $same := list -}}
{{- $near := list -}}
{{- $part := "" -}}
{{- $whole := "" -}}
{{- range index . 1 -}}
{{- $other := lower . -}}
{{- if eq $word $other -}}{{- $same = append $same . -}}{{- end -}}
{{- $shared := false -}}
{{- range include "topodisk.shortened" $other | fromJsonArray -}}{{- if has . $shortened -}}{{- $shared = true -}}{{- end -}}{{- end -}}
{{- if $shared -}}{{- $near = append $near . -}}{{- end -}}
{{- if and (contains $other $word) (gt (len .) (max 3 (len $part) | int)) -}}{{- $part = . -}}{{- end -}}
{{- if and (contains $word $other) (gt (len $word) 2) (or (not $whole) (lt (len .) (len $whole))) -}}{{- $whole = . -}}{{- end -}}
{{- end -}}
{{- $meant := $same | default $near | default (list $part | compact) | default (list $whole | compact) -}}
{{- if and $meant (lt (len $meant) 4) -}}; did you mean {{ join " or " $meant }}?{{- end -}}
{{- end -}}

{{/* A word and what is left of it without any one of its letters, as a JSON list. */}}
{{- define "topodisk.shortened" -}}
{{- $word := . -}}
{{- $all := list $word -}}
{{- range $i := until (len $word) -}}
{{- $all = append $all (printf "%s%s" (substr 0 $i $word) (substr (int (add1 $i)) (len $word) $word)) -}}
{{- end -}}
{{- toJson (without $all "") -}}
{{- end -}}
