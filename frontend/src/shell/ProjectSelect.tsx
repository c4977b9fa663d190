import { SelectMenu } from "../components/SelectMenu";
import { usePhone } from "../lib/hooks";
import { useIsEmbedded } from "./embedding";
import { useProject, useProjects } from "./project";
import styles from "./shell.module.css";

/** The same on the screen itself, where the masthead has none: on a phone, and where the page is embedded. */
export function ProjectSelectOnScreen() {
  const isPhone = usePhone();
  if (!useIsEmbedded() && !isPhone) return null;
  return (
    <div className={styles["onScreen"]}>
      <ProjectSelect />
    </div>
  );
}

/** The project whose jobs are shown; only where there are several. */
export function ProjectSelect() {
  const [project, choose] = useProject();
  const projects = useProjects();
  if (projects.length < 2 && !project) return null;
  const known = projects.some(({ name }) => name === project) || !project;
  const options = [
    { value: "", label: "All projects" },
    ...projects.map(({ name, label }) => ({ value: name, label })),
    ...(known ? [] : [{ value: project, label: project }]),
  ];
  return <SelectMenu label="Project" value={project} options={options} onChange={choose} showsLabel />;
}
