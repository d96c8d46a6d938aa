{{/* The drivers that are switched on. */}}
{{- define "drivers" -}}
{{- $on := list -}}
{{- range $driver := list "disk" "nas" "oss" -}}
{{- if (index $.Values.csi $driver).enabled -}}{{- $on = append $on $driver -}}{{- end -}}
{{- end -}}
{{- join "," $on -}}
{{- end -}}

{{/* A sidecar of one driver, of (list root driver container image arguments...). */}}
{{- define "sidecar" -}}
- name: {{ index . 2 }}
  image: {{ (index . 0).Values.images.registry }}/{{ index . 3 }}
  args: [--csi-address=/csi/csi.sock{{ range slice . 4 }}, {{ . }}{{ end }}]
  volumeMounts: [{name: {{ index . 1 }}-provisioner-dir, mountPath: /csi}]
{{- end -}}

{{- define "component" -}}
{{- with .Values.component }}
  annotations: {component.version: {{ . }}, component.revision: "5"}
{{- end -}}
{{- end -}}
