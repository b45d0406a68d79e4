-- SELECT DISTINCT a, b % 2 AS odd FROM r

-- @: sums, key a, odd, changes paired
SELECT
  `a`,
  `odd`,
  `_hw_rows`,
  `_hw_old_a`,
  `_hw_old_odd`,
  `_hw_old__hw_rows`,
  `_hw_file`,
  `_hw_position`,
  `_hw_row`,
  `_hw_is`,
  `_hw_was`
FROM (
  SELECT
    `a` AS `a`,
    `odd` AS `odd`,
    `_hw_rows` AS `_hw_rows`,
    `_hw_old_a` AS `_hw_old_a`,
    `_hw_old_odd` AS `_hw_old_odd`,
    `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
    `_hw_file` AS `_hw_file`,
    `_hw_position` AS `_hw_position`,
    `_hw_row` AS `_hw_row`,
    `_hw_rows` > 0 AS `_hw_is`,
    NOT `_hw_row` IS NULL AS `_hw_was`
  FROM (
    SELECT
      `a` AS `a`,
      `odd` AS `odd`,
      CAST((
        COALESCE(`_hw_old__hw_rows`, 0) + COALESCE(`_hw_d__hw_rows`, 0)
      ) AS BIGINT) AS `_hw_rows`,
      `_hw_old_a` AS `_hw_old_a`,
      `_hw_old_odd` AS `_hw_old_odd`,
      `_hw_old__hw_rows` AS `_hw_old__hw_rows`,
      `_hw_file` AS `_hw_file`,
      `_hw_position` AS `_hw_position`,
      `_hw_row` AS `_hw_row`
    FROM (
      SELECT
        `a`,
        `odd`,
        `_hw_d__hw_rows`,
        `_hw_old_a`,
        `_hw_old_odd`,
        `_hw_old__hw_rows`,
        `_hw_file`,
        `_hw_position`,
        `_hw_row`
      FROM (
        SELECT
          `a`,
          `odd`,
          SUM(`_hw_w`) AS `_hw_d__hw_rows`
        FROM (
          SELECT
            `a` AS `a`,
            `b` % 2 AS `odd`,
            `r_rowid`,
            `_hw_w`
          FROM (
            SELECT
              `a` AS `a`,
              `b` AS `b`,
              `rowid` AS `r_rowid`,
              `_hw_w`
            FROM `r@delta`
          ) AS _t
        ) AS _t
        GROUP BY
          `a`,
          `odd`
      ) AS _l
      LEFT JOIN (
        SELECT
          `a` AS `_hw_old_a`,
          `odd` AS `_hw_old_odd`,
          `_hw_rows` AS `_hw_old__hw_rows`,
          `_hw_file` AS `_hw_file`,
          `_hw_position` AS `_hw_position`,
          `_hw_row` AS `_hw_row`
        FROM `@@old`
      ) AS _r
        ON `a` IS NOT DISTINCT FROM `_hw_old_a` AND `odd` IS NOT DISTINCT FROM `_hw_old_odd`
    ) AS _t
  ) AS _t
) AS _t
WHERE
  (
    `_hw_is` OR `_hw_was`
  )
  AND (
    NOT (
      (
        `_hw_is` AND `_hw_was`
      )
      AND `_hw_rows` IS NOT DISTINCT FROM `_hw_old__hw_rows`
    )
  )
