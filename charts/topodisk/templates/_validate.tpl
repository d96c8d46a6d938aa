{{/*
Fails the installation for values that no schema can judge: each is named, with an example,
and all of them at once.
*/}}
{{- define "topodisk.validate" -}}
{{- $wrong := concat (include "topodisk.wrongNames" . | fromJsonArray) (include "topodisk.wrongClasses" . | fromJsonArray) -}}
{{- if not .Values.region -}}
{{- $wrong = append $wrong "region is not set: the region of the cluster's ECS instances, for example --set region=cn-hangzhou" -}}
{{- end -}}
{{- if not .Values.image.repository -}}
{{- $wrong = append $wrong "image.repository is not set: where the image built from the Dockerfile was pushed to, for example --set image.repository=registry.example.com/storage/topodisk" -}}
{{- end -}}
{{- if and .Values.fips (eq .Values.signature "v1") -}}
{{- $wrong = append $wrong "fips is true and signature is v1, which needs SHA-1: set signature=v3, or fips=false" -}}
{{- end -}}
{{- with .Values.credentials -}}
{{- if eq .source "secret" -}}
{{- if and (not .existingSecret) (not .accessKeyID) -}}
{{- $wrong = append $wrong (printf "credentials.existingSecret is not set: a Secret of namespace %s with the keys %s and %s, for example --set credentials.existingSecret=topodisk-credentials" $.Release.Namespace .keys.accessKeyID .keys.accessKeySecret) -}}
{{- end -}}
{{- if and .existingSecret .accessKeyID -}}
{{- $wrong = append $wrong (printf "credentials.existingSecret is %s, and credentials.accessKeyID is set: either an existing Secret or an access key that a Secret is made of" .existingSecret) -}}
{{- end -}}
{{- if ne (empty .accessKeyID) (empty .accessKeySecret) -}}
{{- $wrong = append $wrong "credentials.accessKeyID and credentials.accessKeySecret go together: one is set and the other is not" -}}
{{- end -}}
{{- else if or .existingSecret .accessKeyID .accessKeySecret -}}
{{- $wrong = append $wrong (printf "credentials.source is %s, and an access key is named too (existingSecret, accessKeyID): set credentials.source=secret, or leave them empty" .source) -}}
{{- end -}}
{{- if and (eq .source "oidc") (or (not .oidc.roleARN) (not .oidc.providerARN)) -}}
{{- $wrong = append $wrong "credentials.source is oidc, and credentials.oidc.roleARN or credentials.oidc.providerARN is not set: for example --set credentials.oidc.roleARN=acs:ram::1234567890123456:role/topodisk" -}}
{{- end -}}
{{- end -}}
{{- with .Values.controller.leaderElection -}}
{{- $lease := include "topodisk.seconds" .leaseDuration | int -}}
{{- $renew := include "topodisk.seconds" .renewDeadline | int -}}
{{- $retry := include "topodisk.seconds" .retryPeriod | int -}}
{{- if le $lease (add $renew $retry | int) -}}
{{- $wrong = append $wrong (printf "controller.leaderElection.leaseDuration %s is not longer than renewDeadline %s and retryPeriod %s together: two would lead at once; for example 10s, 7s and 2s" .leaseDuration .renewDeadline .retryPeriod) -}}
{{- end -}}
{{- if or (lt $retry 1) (le (mul $renew 10 | int) (mul $retry 12 | int)) -}}
{{- $wrong = append $wrong (printf "controller.leaderElection.renewDeadline %s is not longer than 1.2 times retryPeriod %s, or retryPeriod is 0s: no program starts with it; for example 7s and 2s" .renewDeadline .retryPeriod) -}}
{{- end -}}
{{- end -}}
{{- range list .Values.controller .Values.nodePlugin -}}
{{- if and .updateStrategy.rollingUpdate .updateStrategy.type (ne .updateStrategy.type "RollingUpdate") -}}
{{- $wrong = append $wrong (printf "%s.updateStrategy.type is %s, and rollingUpdate is set: leave one of them out" (ternary "nodePlugin" "controller" (hasKey . "groups")) .updateStrategy.type) -}}
{{- end -}}
{{- end -}}
{{- range list "controller" "nodePlugin" -}}
{{- $group := . -}}
{{- with get $.Values $group -}}
{{- if not (or .serviceAccount.create .serviceAccount.name) -}}
{{- $wrong = append $wrong (printf "%s.serviceAccount.create is false, and %s.serviceAccount.name is not set: which account is there already?" $group $group) -}}
{{- end -}}
{{- range $key, $_ := .podLabels -}}
{{- if or (hasPrefix "app.kubernetes.io/" $key) (eq $key "topodisk.io/node-group") -}}
{{- $wrong = append $wrong (printf "%s.podLabels has %s, which the chart sets itself: nameOverride changes app.kubernetes.io/name" $group $key) -}}
{{- end -}}
{{- end -}}
{{- $names := ternary (list "POD_NAME" "POD_NAMESPACE") (list "NODE_NAME") (eq $group "controller") -}}
{{- range include "topodisk.fipsEnv" $ | fromYamlArray -}}{{- $names = append $names .name -}}{{- end -}}
{{- if eq $group "controller" -}}
{{- range include "topodisk.proxyEnv" $ | fromYamlArray -}}{{- $names = append $names .name -}}{{- end -}}
{{- if eq $.Values.credentials.source "oidc" -}}{{- $names = concat $names (list "ALIBABA_CLOUD_ROLE_ARN" "ALIBABA_CLOUD_OIDC_PROVIDER_ARN" "ALIBABA_CLOUD_OIDC_TOKEN_FILE") -}}{{- end -}}
{{- end -}}
{{- range .env -}}
{{- if has .name $names -}}
{{- $wrong = append $wrong (printf "%s.env has %s twice, or the chart sets it itself: leave it out" $group .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.nodePlugin.enabled (eq (include "topodisk.controllerAccount" .) (include "topodisk.nodeAccount" .)) -}}
{{- $wrong = append $wrong (printf "controller.serviceAccount.name and nodePlugin.serviceAccount.name are both %s: every node would have the rights of the controller; set two names" (include "topodisk.nodeAccount" .)) -}}
{{- end -}}
{{- $ports := dict -}}
{{- range list "diskDriver" "diskProvisioner" "csiAttacher" "csiResizer" "csiSnapshotter" -}}
{{- $group := get $.Values . -}}
{{- if dig "enabled" true $group -}}
{{- if hasKey $ports $group.httpEndpoint -}}
{{- $wrong = append $wrong (printf "%s.httpEndpoint and %s.httpEndpoint are both %s: the containers share the Pod's address, so set two ports, for example :9808 and :9809" (get $ports $group.httpEndpoint) . $group.httpEndpoint) -}}
{{- end -}}
{{- $_ := set $ports $group.httpEndpoint . -}}
{{- end -}}
{{- end -}}
{{- range prepend .Values.nodePlugin.groups .Values.nodePlugin -}}
{{- if and .volumeAttachLimit .reservedAttachments -}}
{{- $wrong = append $wrong (printf "nodePlugin has volumeAttachLimit %d and reservedAttachments %d%s: the limit is the number of volumes itself; set one of them" (int .volumeAttachLimit) (int .reservedAttachments) (ternary (printf " in the group %q" .name) "" (hasKey . "name"))) -}}
{{- end -}}
{{- end -}}
{{- $groups := list -}}
{{- range .Values.nodePlugin.groups -}}
{{- if has .name $groups -}}
{{- $wrong = append $wrong (printf "nodePlugin.groups has the name %q twice" .name) -}}
{{- end -}}
{{- $groups = append $groups .name -}}
{{- end -}}
{{- if and .Values.volumeSnapshotClasses (not .Values.csiSnapshotter.enabled) -}}
{{- $wrong = append $wrong "volumeSnapshotClasses are given and csiSnapshotter.enabled is false: nobody would cut the snapshots; set csiSnapshotter.enabled=true" -}}
{{- end -}}
{{- if and .Values.volumeAttributesClasses (semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version) -}}
{{- $wrong = append $wrong (printf "volumeAttributesClasses are given and Kubernetes is %s: they need 1.34 or later; leave them out" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- range .Values.rbac.provisionerSecrets -}}
{{- if and (has "*" .names) (gt (len .names) 1) -}}
{{- $wrong = append $wrong (printf "rbac.provisionerSecrets of namespace %s has \"*\" beside names: either \"*\" alone or names" .namespace) -}}
{{- end -}}
{{- end -}}
{{- $namespaces := list -}}
{{- range .Values.rbac.provisionerSecrets -}}
{{- if has .namespace $namespaces -}}
{{- $wrong = append $wrong (printf "rbac.provisionerSecrets has namespace %s twice: put all its names into one entry" .namespace) -}}
{{- end -}}
{{- $namespaces = append $namespaces .namespace -}}
{{- end -}}
{{- $defaults := list -}}
{{- $classes := list -}}
{{- range .Values.storageClasses -}}
{{- if has .name $classes -}}
{{- $wrong = append $wrong (printf "storageClasses has the name %s twice" .name) -}}
{{- end -}}
{{- $classes = append $classes .name -}}
{{- if .default -}}{{- $defaults = append $defaults .name -}}{{- end -}}
{{- end -}}
{{- if gt (len $defaults) 1 -}}
{{- $wrong = append $wrong (printf "storageClasses has %d defaults (%s): a cluster has one" (len $defaults) (join ", " $defaults)) -}}
{{- end -}}
{{- if $wrong -}}
{{- fail (printf "\n- %s" (join "\n- " $wrong)) -}}
{{- end -}}
{{- end -}}
