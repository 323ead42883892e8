{{- define "image" }}
{{- $values := index . 0 }}
{{- $name := index . 1 }}
{{- $registry := default $values.global.cattle.systemDefaultRegistry $values.privateRegistry.registryUrl }}
{{- if $registry }}
{{- $name = printf "%s/%s" (trimSuffix "/" $registry) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $name "") }}
{{- end }}
{{- quote $name }}
{{- end }}
