{{- define "agentk.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "agentk.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "agentk.labels" -}}
{{ include "agentk.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- with .Values.additionalLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "agentk.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "agentk.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: name the service account, or let one be made (serviceAccount.create)" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "agentk.secret" -}}
{{- if and .Values.config.token .Values.config.secretName -}}
{{- fail "config.token and config.secretName are mutually exclusive; remove one" -}}
{{- else if .Values.config.token -}}
{{- include "agentk.fullname" . }}-token
{{- else -}}
{{- required "config.token or config.secretName: the agent's token is missing; `kasctl agent add NAME` makes one" .Values.config.secretName -}}
{{- end -}}
{{- end -}}

{{- define "agentk.clusterName" -}}
{{ .Release.Namespace }}-{{ include "agentk.fullname" . }}
{{- end -}}

{{- define "agentk.subjects" -}}
- kind: ServiceAccount
  name: {{ include "agentk.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- /* agentk's own configuration file, without empty sections. */}}
{{- define "agentk.configuration" }}
{{- with .Values.config.kubernetes }}
kubernetes:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.config.modules }}
modules:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or .Values.config.policy .Values.admission.enabled }}
policy:
  {{- with .Values.config.policy }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if .Values.admission.enabled }}
  admission:
    address: ":8443"
    service: {{ include "agentk.fullname" . }}-admission
  {{- end }}
{{- end }}
{{- with .Values.config.observability }}
{{- if or .tracing .sentry .profile }}
observability:
  {{- with .tracing }}
  tracing:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .sentry }}
  sentry:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .profile }}
  profile:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
