{{/* Name that every object of the release starts with. */}}
{{- define "topodisk.fullname" -}}
{{- if contains "topodisk" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-topodisk" (.Release.Name | trunc 31 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* Name of the controller's Deployment, ServiceAccount and PodDisruptionBudget. */}}
{{- define "topodisk.controller" -}}
{{- printf "%s-controller" (include "topodisk.fullname" .) -}}
{{- end -}}

{{/* Labels that select the controller's Pods; a Deployment's selector can never change. */}}
{{- define "topodisk.selectorLabels" -}}
app.kubernetes.io/name: topodisk
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{/* Labels of every object. Helm itself adds app.kubernetes.io/managed-by where it installs. */}}
{{- define "topodisk.labels" -}}
{{ include "topodisk.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "topodisk.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{/* The cluster's ID: the value, else the UID of kube-system, else empty where no cluster can be asked. */}}
{{- define "topodisk.clusterID" -}}
{{- if .Values.clusterID -}}
{{- .Values.clusterID -}}
{{- else -}}
{{- dig "metadata" "uid" "" (lookup "v1" "Namespace" "" "kube-system") -}}
{{- end -}}
{{- end -}}

{{/* Name of the leader election's Lease: the driver name, with a dash for every character that a Lease cannot have. */}}
{{- define "topodisk.lease" -}}
{{- regexReplaceAll "[^a-zA-Z0-9-]" .Values.driverName "-" -}}
{{- end -}}

{{/* Directory of the credentials' files. It ends in the Secret's name, so that an error about a file names the Secret too. */}}
{{- define "topodisk.credentialsDir" -}}
{{- printf "/var/run/secrets/topodisk/%s" .Values.credentials.existingSecret -}}
{{- end -}}

{{/* What every container is denied. */}}
{{- define "topodisk.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
