{{/* Name of the application. */}}
{{- define "topodisk.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end -}}

{{/* Name that every object of the release starts with: 40 characters at most, so that 23 are left for what follows. */}}
{{- define "topodisk.fullname" -}}
{{- $name := include "topodisk.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc (sub 39 (len $name) | int) | trimSuffix "-") $name -}}
{{- end -}}
{{- end -}}

{{/* Name of the controller's Deployment and of the objects that belong to it. */}}
{{- define "topodisk.controller" -}}
{{- printf "%s-controller" (include "topodisk.fullname" .) -}}
{{- end -}}

{{/* What the names of the node plugin's DaemonSets start with. */}}
{{- define "topodisk.node" -}}
{{- printf "%s-node" (include "topodisk.fullname" .) -}}
{{- end -}}

{{/* Names of the ServiceAccounts. */}}
{{- define "topodisk.controllerAccount" -}}
{{- .Values.controller.serviceAccount.name | default (include "topodisk.controller" .) -}}
{{- end -}}

{{- define "topodisk.nodeAccount" -}}
{{- .Values.nodePlugin.serviceAccount.name | default (include "topodisk.node" .) -}}
{{- end -}}

{{/* Number of the controller's Pods: controller.replicas is the former name. */}}
{{- define "topodisk.replicas" -}}
{{- .Values.controller.replicas | default .Values.controller.replicaCount | int -}}
{{- end -}}

{{/* Labels that select a component's Pods, of (list root component); a Deployment's selector can never change. */}}
{{- define "topodisk.selector" -}}
app.kubernetes.io/name: {{ include "topodisk.name" (index . 0) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of a component's objects, of (list root component). kubectl topodisk knows one with another name by part-of. Helm adds app.kubernetes.io/managed-by where it installs. */}}
{{- define "topodisk.labelsOf" -}}
{{ include "topodisk.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- if (index . 0).Values.nameOverride }}
app.kubernetes.io/part-of: topodisk
{{- end }}
{{- end -}}

{{/* Labels of the controller's objects, and of those that belong to nobody. */}}
{{- define "topodisk.labels" -}}
{{ include "topodisk.labelsOf" (list . "controller") }}
{{- end -}}

{{/* An image, of (list repository values) with the values tag and digest. */}}
{{- define "topodisk.reference" -}}
{{- $values := index . 1 -}}
{{- index . 0 -}}{{- with $values.digest -}}@{{- . -}}{{- else -}}:{{- $values.tag -}}{{- end -}}
{{- end -}}

{{- define "topodisk.image" -}}
{{- $values := dict "tag" (.Values.image.tag | default .Chart.AppVersion) "digest" .Values.image.digest -}}
{{- include "topodisk.reference" (list .Values.image.repository $values) -}}
{{- end -}}

{{/* The image of a sidecar, of (list root name values). */}}
{{- define "topodisk.sidecarImage" -}}
image: {{ include "topodisk.reference" (list (printf "%s/%s" (index . 0).Values.sidecars.registry (index . 1)) (index . 2)) }}
imagePullPolicy: {{ (index . 0).Values.sidecars.pullPolicy }}
{{- end -}}

{{/* Name of the leader election's Lease: the driver name, with a dash for every character that a Lease cannot have. */}}
{{- define "topodisk.lease" -}}
{{- regexReplaceAll "[^a-zA-Z0-9-]" .Values.driverName "-" -}}
{{- end -}}

{{/* Name of the Secret with the access key: the user's, or the one that the chart makes. */}}
{{- define "topodisk.secret" -}}
{{- .Values.credentials.existingSecret | default (printf "%s-credentials" (include "topodisk.fullname" .)) -}}
{{- end -}}

{{/* Directory of the credentials' files. It ends in the Secret's name, so that an error about a file names the Secret too. */}}
{{- define "topodisk.credentialsDir" -}}
{{- printf "/var/run/secrets/topodisk/%s" (include "topodisk.secret" .) -}}
{{- end -}}

{{/* What every container is denied that need not mount. */}}
{{- define "topodisk.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What every Pod says of where its images come from. */}}
{{- define "topodisk.pullSecrets" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* The proxy, as disk-driver's environment. What client-go reads there counts for the API server, too. */}}
{{- define "topodisk.proxyEnv" -}}
{{- with .Values.proxy -}}
{{- $https := .https_proxy | default .http_proxy -}}
{{- with .http_proxy }}
- name: HTTP_PROXY
  value: {{ . | quote }}
{{- end }}
{{- with $https }}
- name: HTTPS_PROXY
  value: {{ . | quote }}
- name: NO_PROXY
  value: {{ prepend (without (splitList "," $.Values.proxy.no_proxy) "") "$(KUBERNETES_SERVICE_HOST)" | join "," | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* What has the Go runtime of our programs refuse cryptography that FIPS 140-3 doesn't approve. */}}
{{- define "topodisk.fipsEnv" -}}
{{- if .Values.fips -}}
- name: GODEBUG
  value: fips140=only
{{- end -}}
{{- end -}}

{{/* The port of a host or URL, of (list address scheme): the scheme is that of an address without one. */}}
{{- define "topodisk.port" -}}
{{- $url := index . 0 | trimSuffix "/" -}}
{{- if not (contains "://" $url) -}}{{- $url = printf "%s://%s" (index . 1) $url -}}{{- end -}}
{{- regexFind ":[0-9]+$" $url | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https://" $url)) -}}
{{- end -}}

{{/* The token of the API server, in the place where programs look for it. */}}
{{- define "topodisk.apiTokenVolume" -}}
- name: api-token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
{{- end -}}

{{- define "topodisk.apiTokenMount" -}}
- name: api-token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}

{{/* Flags of the Lease, for every program that takes part in a leader election. */}}
{{- define "topodisk.leaseFlags" -}}
- --leader-election=true
- --leader-election-namespace={{ .Release.Namespace }}
{{- with .Values.controller.leaderElection }}
- --leader-election-lease-duration={{ .leaseDuration }}
- --leader-election-renew-deadline={{ .renewDeadline }}
- --leader-election-retry-period={{ .retryPeriod }}
{{- end }}
{{- end -}}

{{/* Flags that every sidecar has, of (list root values). */}}
{{- define "topodisk.sidecarFlags" -}}
{{- $root := index . 0 -}}
{{- with index . 1 -}}
- --retry-interval-start={{ .retryIntervalStart }}
- --retry-interval-max={{ .retryIntervalMax }}
- --kube-api-qps={{ .kubeApiQps }}
- --kube-api-burst={{ .kubeApiBurst | int }}
{{ include "topodisk.leaseFlags" $root }}
- --http-endpoint={{ .httpEndpoint }}
- --logging-format={{ $root.Values.loggingFormat }}
- --v={{ .v | int }}
{{- range .extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* How long a sidecar may take to answer, of its port's name. */}}
{{- define "topodisk.sidecarStartup" -}}
# It waits for disk-driver to be ready before it answers: for a day at most, for no restart would mend the credentials.
startupProbe:
  httpGet:
    path: /healthz/leader-election
    port: {{ . }}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 43200
{{- end -}}

{{/* What follows a sidecar's flags, of (list root port-name values): it has the socket and a token, and nothing else. */}}
{{- define "topodisk.sidecarRest" -}}
{{- $values := index . 2 -}}
ports:
  - name: {{ index . 1 }}
    containerPort: {{ trimPrefix ":" $values.httpEndpoint }}
{{ include "topodisk.sidecarStartup" (index . 1) }}
# Restarted if it takes itself for the leader and cannot renew its Lease.
livenessProbe:
  httpGet:
    path: /healthz/leader-election
    port: {{ index . 1 }}
  timeoutSeconds: 5
  failureThreshold: 3
resources:
  {{- toYaml $values.resources | nindent 2 }}
securityContext:
  {{- include "topodisk.containerSecurityContext" (index . 0) | nindent 2 }}
volumeMounts:
  - name: socket
    mountPath: /csi
  {{- include "topodisk.apiTokenMount" (index . 0) | nindent 2 }}
{{- end -}}

{{/* The binding of a role, of (dict root, kind, name, namespace for a Role, account). */}}
{{- define "topodisk.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "topodisk.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* The Role of a sidecar's own Lease with its binding, of (dict root, component, lease, verbs, and events if no other
     role of its own lets it make them). */}}
{{- define "topodisk.leaseRole" -}}
{{- $name := printf "%s-%s" (include "topodisk.fullname" .root) .component -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "topodisk.labels" .root | nindent 4 }}
rules:
  # The name of an object about to be made cannot be checked, so create stands alone.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ .lease }}]
    verbs: [{{ .verbs }}]
  {{- if .events }}
  # That it leads is an event on the Lease.
  - apiGroups: [""]
    resources: [events]
    verbs: [create, patch]
  {{- end }}
---
{{ include "topodisk.binding" (dict "root" .root "kind" "Role" "name" $name "namespace" .root.Release.Namespace "account" (include "topodisk.controllerAccount" .root)) }}
{{- end -}}

{{/* A duration such as 1h5m30s in seconds. */}}
{{- define "topodisk.seconds" -}}
{{- $total := 0 -}}
{{- range regexFindAll "[0-9]+[hms]" . -1 -}}
{{- $unit := trunc -1 . -}}
{{- $total = add $total (mul (trimSuffix $unit . | int) (get (dict "h" 3600 "m" 60 "s" 1) $unit)) -}}
{{- end -}}
{{- $total -}}
{{- end -}}

{{/* The spec of the CSIDriver object. */}}
{{- define "topodisk.csiDriverSpec" -}}
attachRequired: true
podInfoOnMount: false
fsGroupPolicy: File
seLinuxMount: {{ .Values.csiDriver.seLinuxMount }}
# storageCapacity is left out: disk-provisioner sets it once its CSIStorageCapacity objects are there.
{{- if semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version }}
nodeAllocatableUpdatePeriodSeconds: {{ .Values.csiDriver.nodeAllocatableUpdatePeriodSeconds | int }}
{{- end }}
{{- if and .Values.csiDriver.preventPodSchedulingIfMissing (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) }}
preventPodSchedulingIfMissing: true
{{- end }}
volumeLifecycleModes: [Persistent]
{{- end -}}

{{/* The CSIDriver object that is there and not the release's own, as JSON: {} if there is none, and where Helm asks no API server.
     One that was made again in the place of the release's own counts as that: Helm would delete what it no longer finds in the chart. */}}
{{- define "topodisk.otherCSIDriver" -}}
{{- $object := dict -}}
{{- if .Values.csiDriver.create -}}
{{- $object = lookup "storage.k8s.io/v1" "CSIDriver" "" .Values.driverName -}}
{{- end -}}
{{- $by := dig "metadata" "annotations" dict $object -}}
{{- $helms := eq (dig "metadata" "labels" "app.kubernetes.io/managed-by" "" $object) "Helm" -}}
{{- if and $helms (eq (dig "meta.helm.sh/release-name" "" $by) .Release.Name) (eq (dig "meta.helm.sh/release-namespace" "" $by) .Release.Namespace) -}}
{{- $object = dict -}}
{{- else if and $object (include "topodisk.madeCSIDriver" .) (ne (dig "helm.sh/resource-policy" "" $by) "keep") -}}
{{- with dig "meta.helm.sh/release-name" "" $by -}}
{{- fail (printf "\n\nThe CSIDriver object %s, which this release had made, is of Helm release %s in namespace %s now. Leave it to that release, and repeat the upgrade:\n\n  kubectl annotate csidriver %s helm.sh/resource-policy=keep\n" $.Values.driverName . (dig "meta.helm.sh/release-namespace" "" $by) $.Values.driverName) -}}
{{- end -}}
{{- if include "topodisk.unusableCSIDriver" $object.spec -}}
{{- fail (printf "\n\nThe CSIDriver object %s, which this release had made, was made again by somebody else. %s. Delete it, and repeat the upgrade:\n\n  kubectl delete csidriver %s\n" .Values.driverName (include "topodisk.unusableCSIDriver" $object.spec) .Values.driverName) -}}
{{- end -}}
{{- $object = dict -}}
{{- else if and $object .Release.IsInstall (not .Values.takeover) -}}
{{- $of := "of a driver that is not this release" -}}
{{- with dig "meta.helm.sh/release-name" "" $by -}}
{{- $of = printf "of Helm release %s in namespace %s" . (dig "meta.helm.sh/release-namespace" "" $by) -}}
{{- end -}}
{{- fail (printf "\n\nA CSIDriver object %s is there already, %s: two drivers of one name take each other's disks. Try topodisk beside it under another name (driverName; docs/pilot.md), or switch from it to topodisk (docs/takeover.md), whose commands this prints, and then set takeover=true:\n\n  kubectl topodisk plan takeover\n" $.Values.driverName $of) -}}
{{- end -}}
{{- toJson $object -}}
{{- end -}}

{{/* Whether the last revision of the release has the CSIDriver object: its Deployment then says so. */}}
{{- define "topodisk.madeCSIDriver" -}}
{{- $deployment := lookup "apps/v1" "Deployment" .Release.Namespace (include "topodisk.controller" .) -}}
{{- if eq (dig "metadata" "annotations" "topodisk.io/csi-driver" "" $deployment) .Values.driverName -}}true{{- end -}}
{{- end -}}

{{/* Why no disk can be used with a CSIDriver object, of its spec. */}}
{{- define "topodisk.unusableCSIDriver" -}}
{{- if not (and .attachRequired (has "Persistent" .volumeLifecycleModes)) -}}
No disk can be used with it: attachRequired is {{ .attachRequired }} and volumeLifecycleModes {{ toJson .volumeLifecycleModes }}, topodisk needs true and ["Persistent"], and neither can be changed
{{- end -}}
{{- end -}}

{{/*
Flags of disk-driver for options of mkfs and mount that the operator allows.
*/}}
{{- define "topodisk.allowFlags" -}}
{{- range .Values.allowMkfsOptions }}
- {{ printf "--allow-mkfs-option=%s" . | quote }}
{{- end }}
{{- range .Values.allowMountOptions }}
- {{ printf "--allow-mount-option=%s" . | quote }}
{{- end }}
{{- end }}

{{/*
An expression of files/admission.json, with what the operator allows in place of its marks: <item -E> in the list of a flag,
<flag -D> for a flag without a value, <value -g> for one with a value, and <mount>.
*/}}
{{- define "topodisk.admissionExpression" -}}
{{- $expression := index . 1 -}}
{{- $space := `\s\p{Z}\x{0b}\x{85}` -}}
{{- range (index . 0).Values.allowMkfsOptions -}}
{{- $flag := substr 0 2 . -}}
{{- $text := trimPrefix $flag . | trim -}}
{{- $item := ternary (printf "[^,/%s]+" $space) (regexQuoteMeta $text) (empty $text) -}}
{{- if and $text (not (contains "=" $text)) -}}
{{- $item = printf "%s(?:=[^,/%s]*)?" $item $space -}}
{{- end -}}
{{- $option := printf "|-[fFjKqv]*%s" (trimPrefix "-" $flag) -}}
{{- $value := ternary (printf "[^/%s]+" $space) (regexQuoteMeta $text) (empty $text) -}}
{{- $item = printf "|%s<item %s>" $item $flag -}}
{{- $value = printf "%s[%s]*%s<value %s>" $option $space $value $flag -}}
{{- $expression = $expression | replace (printf "<item %s>" $flag) $item | replace (printf "<value %s>" $flag) $value -}}
{{- $expression = $expression | replace (printf "<flag %s>" $flag) (printf "%s[fFjKqv]*<flag %s>" $option $flag) -}}
{{- end -}}
{{- range (index . 0).Values.allowMountOptions -}}
{{- $option := printf "|%s%s" (regexQuoteMeta .) (ternary "" (printf "(?:=[^,/\"%s]*)?" $space) (contains "=" .)) -}}
{{- $expression = replace "<mount>" (printf "%s<mount>" $option) $expression -}}
{{- end -}}
{{- regexReplaceAllLiteral "<(item|flag|value) -[A-Za-z]>|<mount>" $expression "" -}}
{{- end }}
